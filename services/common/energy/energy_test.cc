#include "services/common/energy/energy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "services/common/energy/device_energy.h"
#include "services/common/energy/sensor_in_use.h"
#include "services/common/metrics/metrics_server.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class EnergyTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  const TemporaryDirectory temporary_;
  const fs::path root_ = temporary_.path();
};

TEST_F(EnergyTest, AMachineWithoutSensorsHasNone) {
  const EnergySensors sensors = FindSysfsSensors(root_.string());
  EXPECT_TRUE(sensors.found.empty());
  EXPECT_TRUE(sensors.refused.empty());
}

TEST_F(EnergyTest, FindsTheGraphicsCardAndWholePackages) {
  Write("sys/class/hwmon/hwmon0/name", "nvme\n");
  Write("sys/class/hwmon/hwmon1/name", "amdgpu\n");
  Write("sys/class/hwmon/hwmon1/power1_average", "45000000\n");
  Write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
  Write("sys/class/powercap/intel-rapl:0/energy_uj", "5000000\n");
  Write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "9000000\n");
  Write("sys/class/powercap/intel-rapl:0:0/name", "core\n");
  Write("sys/class/powercap/intel-rapl:0:0/energy_uj", "1\n");
  Write("sys/class/powercap/intel-rapl:1/name", "package-1\n");
  const EnergySensors sensors = FindSysfsSensors(root_.string());
  ASSERT_EQ(sensors.found.size(), 2u);
  EXPECT_EQ(sensors.found[0]->name(), "amdgpu hwmon1");
  EXPECT_FALSE(sensors.found[0]->counts_joules());
  EXPECT_DOUBLE_EQ(*sensors.found[0]->Read(), 45) << "watts";
  EXPECT_EQ(sensors.found[1]->name(), "package-0 (RAPL)");
  EXPECT_DOUBLE_EQ(*sensors.found[1]->Read(), 5) << "joules";
  EXPECT_DOUBLE_EQ(sensors.found[1]->range(), 9);
  ASSERT_EQ(sensors.refused.size(), 1u) << "package-1 tells nothing";
  EXPECT_THAT(sensors.refused[0], ::testing::HasSubstr("package-1 (RAPL)"));
}

TEST_F(EnergyTest, CountersAreSubtractedAlsoWhereTheyRunOver) {
  const std::string counter = "sys/class/powercap/intel-rapl:0/energy_uj";
  Write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
  Write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "9000000\n");
  Write(counter, "5000000\n");
  EnergyMeter meter(std::move(FindSysfsSensors(root_.string()).found));
  meter.Reset();
  meter.Begin();
  Write(counter, "8000000\n");
  meter.End();
  ASSERT_EQ(meter.Joules().size(), 1u);
  EXPECT_NEAR(meter.Joules()[0].joules, 3, 1e-9);
  Write(counter, "8500000\n");  // between two measurements: nobody's
  meter.Begin();
  Write(counter, "500000\n");
  meter.End();
  EXPECT_NEAR(meter.Joules()[0].joules, 3 + 1, 1e-9);
  meter.Reset();
  EXPECT_EQ(meter.Joules()[0].joules, 0);
}

TEST_F(EnergyTest, ASensorThatFailsIsLeftOut) {
  Write("sys/class/hwmon/hwmon1/name", "amdgpu\n");
  Write("sys/class/hwmon/hwmon1/power1_average", "45000000\n");
  EnergyMeter meter(std::move(FindSysfsSensors(root_.string()).found));
  meter.Reset();
  meter.Begin();
  fs::remove(root_ / "sys/class/hwmon/hwmon1/power1_average");
  meter.End();
  EXPECT_TRUE(meter.Joules().empty());
}

TEST_F(EnergyTest, TheEnergyOfAGpuIsCountedWhereOneSensorIsItsOwn) {
  Write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
  Write("sys/class/powercap/intel-rapl:0/energy_uj", "1\n");
  EXPECT_EQ(DeviceEnergy::OfOneGpu(FindSysfsSensors(root_.string())), nullptr)
      << "a whole package is not";
  Write("sys/class/hwmon/hwmon1/name", "amdgpu\n");
  Write("sys/class/hwmon/hwmon1/energy1_input", "1000000\n");
  const auto energy = DeviceEnergy::OfOneGpu(FindSysfsSensors(root_.string()));
  ASSERT_NE(energy, nullptr);
  Write("sys/class/hwmon/hwmon1/energy1_input", "3500000\n");
  const auto page = [&energy] {
    return MetricsText([&](MetricSamples& samples) { energy->AddTo("gpu0", samples); });
  };
  // The meter reads on by itself.
  EXPECT_TRUE(testing::Eventually([&] {
    return page().find("tandem_device_energy_joules_total{worker=\"gpu0\"} 2.5\n") !=
           std::string::npos;
  })) << page();
  Write("sys/class/hwmon/hwmon2/name", "amdgpu\n");
  Write("sys/class/hwmon/hwmon2/energy1_input", "1\n");
  EXPECT_EQ(DeviceEnergy::OfOneGpu(FindSysfsSensors(root_.string())), nullptr)
      << "which is the worker's?";
}

TEST(SensorInUseTest, ADeviceThatIsNotUsedIsNotAsked) {
  int num_readings = 0;
  SensorInUse sensor("npu", [&]() -> absl::StatusOr<double> { return ++num_readings; });
  for (uint32_t i = 0; i < 3 * SensorInUse::kReadingsAfterUse; ++i) EXPECT_OK(sensor.Read());
  EXPECT_EQ(num_readings, 1 + SensorInUse::kReadingsAfterUse);
  EXPECT_EQ(*sensor.Read(), num_readings) << "the last reading again";
  sensor.Use();
  EXPECT_EQ(*sensor.Read(), 2 + SensorInUse::kReadingsAfterUse);
}

TEST_F(EnergyTest, ThePowerOfAGpuIsTheMeanOfTheLastSecond) {
  Write("sys/class/hwmon/hwmon1/name", "amdgpu\n");
  Write("sys/class/hwmon/hwmon1/power1_average", "45000000\n");
  const auto energy = DeviceEnergy::OfOneGpu(FindSysfsSensors(root_.string()));
  ASSERT_NE(energy, nullptr);
  EXPECT_EQ(energy->name(), "amdgpu hwmon1");
  EXPECT_TRUE(testing::Eventually([&] { return std::abs(energy->watts() - 45.0) < 1e-3; }))
      << energy->watts();
  fs::remove(root_ / "sys/class/hwmon/hwmon1/power1_average");
  EXPECT_TRUE(testing::Eventually([&] { return energy->watts() == 0.0; })) << energy->watts();
}

}  // namespace
}  // namespace tandem
