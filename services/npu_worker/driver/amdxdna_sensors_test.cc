// Against a driver of this test's; no NPU has answered here.
#include "services/npu_worker/driver/amdxdna_sensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem::npu {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

SensorRecord Record(const char* label, uint8_t type, uint32_t input, int8_t exponent) {
  SensorRecord record = {};
  std::strncpy(record.label, label, sizeof(record.label) - 1);
  record.type = type;
  record.input = input;
  record.exponent = exponent;
  return record;
}

const std::vector<SensorRecord> kBusyNpu = {
    Record("Total Power", SensorRecord::kPower, 3250, -3),
    Record("Temperature", SensorRecord::kTemperature, 51, 0),
    Record("Column 0", SensorRecord::kColumnUtilization, 75, 0),
    Record("Column 1", SensorRecord::kColumnUtilization, 0, 0)};

class AmdxdnaSensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("sys/bus/pci/devices/0000:c5:00.1/accel/accel3/dev", "261:3");
    Write("sys/bus/pci/devices/0000:c5:00.1/power/runtime_status", "active\n");
    Write("dev/accel/accel3", "");
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = std::filesystem::path(root_.path()) / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  // A driver that answers with `records_`, or fails with `error_`.
  AmdxdnaSensors::Ioctl Driver() {
    return [this](int, unsigned long request, void* argument) {
      ++num_calls_;
      if (error_ != 0) {
        errno = error_;
        return -1;
      }
      EXPECT_EQ(request, 0xC0106447u) << "as the kernel's header makes it";
      struct {
        uint32_t param, size;
        uint64_t buffer;
      } info;
      std::memcpy(&info, argument, sizeof(info));
      EXPECT_EQ(info.param, 4u);
      const size_t bytes = records_.size() * sizeof(SensorRecord);
      EXPECT_LE(bytes, info.size);
      std::memcpy(reinterpret_cast<void*>(info.buffer), records_.data(), bytes);
      info.size = static_cast<uint32_t>(bytes);
      std::memcpy(argument, &info, sizeof(info));
      return 0;
    };
  }
  std::shared_ptr<AmdxdnaSensors> Open(std::string_view address = "0000:c5:00.1") {
    auto sensors = AmdxdnaSensors::Open(root_.path(), address, Driver());
    EXPECT_OK(sensors.status());
    return *std::move(sensors);
  }

  TemporaryDirectory root_;
  std::vector<SensorRecord> records_ = kBusyNpu;
  int error_ = 0;
  int num_calls_ = 0;
};

TEST_F(AmdxdnaSensorsTest, ReadsWhatTheDriverReports) {
  ASSERT_OK_AND_ASSIGN(const NpuReading reading, Open("c5:00.1")->Read());
  EXPECT_THAT(reading.watts, Optional(DoubleEq(3.25)));
  EXPECT_THAT(reading.celsius, Optional(DoubleEq(51)));
  EXPECT_THAT(reading.column_busy, ElementsAre(DoubleEq(0.75), DoubleEq(0)));
}

TEST_F(AmdxdnaSensorsTest, AsksSeldomEnoughForTheNpuToFallAsleep) {
  const auto sensors = Open();
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const NpuReading reading, sensors->Read());
    EXPECT_THAT(reading.watts, Optional(DoubleEq(3.25)));
  }
  EXPECT_EQ(num_calls_, 1);
}

TEST_F(AmdxdnaSensorsTest, AsksAsOftenAsItIsAskedTo) {
  const auto sensors = Open();
  EXPECT_OK(sensors->Read().status());
  EXPECT_OK(sensors->Read(absl::ZeroDuration()).status());
  EXPECT_OK(sensors->Read(absl::Minutes(1)).status());
  EXPECT_EQ(num_calls_, 2);
}

TEST_F(AmdxdnaSensorsTest, LeavesASuspendedNpuAsleep) {
  const auto sensors = Open();
  EXPECT_OK(sensors->Read().status());
  Write("sys/bus/pci/devices/0000:c5:00.1/power/runtime_status", "suspended\n");
  ASSERT_OK_AND_ASSIGN(const NpuReading reading, sensors->Read());
  EXPECT_EQ(num_calls_, 1);
  EXPECT_THAT(reading.watts, Optional(0.0));
  EXPECT_EQ(reading.celsius, std::nullopt);
  EXPECT_THAT(reading.column_busy, ElementsAre(0, 0));
}

TEST_F(AmdxdnaSensorsTest, TakesNothingForAReadingThatIsNone) {
  records_ = {Record("Total Power", SensorRecord::kPower, UINT32_MAX, -3),
              Record("Fan", 200, 1000, 0), SensorRecord{}};
  ASSERT_OK_AND_ASSIGN(const NpuReading reading, Open()->Read());
  EXPECT_EQ(reading.watts, std::nullopt);
  EXPECT_EQ(reading.celsius, std::nullopt);
  EXPECT_THAT(reading.column_busy, IsEmpty());
}

TEST_F(AmdxdnaSensorsTest, SaysWhatIsMissing) {
  const auto nowhere = AmdxdnaSensors::Open(root_.path(), "0000:01:00.0", Driver());
  EXPECT_TRUE(absl::IsNotFound(nowhere.status()));
  EXPECT_THAT(std::string(nowhere.status().message()), HasSubstr("0000:01:00.0"));
  std::filesystem::remove(root_.path() + "/dev/accel/accel3");
  const auto no_node = AmdxdnaSensors::Open(root_.path(), "0000:c5:00.1", Driver());
  EXPECT_THAT(std::string(no_node.status().message()), HasSubstr("dev/accel/accel3"));
}

TEST_F(AmdxdnaSensorsTest, DriversWithoutSensorsSaySo) {
  error_ = EOPNOTSUPP;
  EXPECT_TRUE(absl::IsUnimplemented(Open()->Read().status()));
}

}  // namespace
}  // namespace tandem::npu
