#include "services/npu_worker/xrt/npu_sensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/common/base/logging.h"
#include "services/common/base/mutex.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/driver/amdxdna_sensors.h"
#include "services/npu_worker/xrt/device_access.h"
#include "services/npu_worker/xrt/xrt_features.h"
#include "services/npu_worker/xrt/xrt_status.h"

namespace tandem::npu {
namespace {

using nlohmann::json;

constexpr absl::Duration kAskPowerEvery = absl::Milliseconds(500);

// A number, or a text that holds one (not "N/A").
std::optional<double> NumberOf(const json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  double value = 0;
  if (!found->is_string() || !absl::SimpleAtod(found->get<std::string>(), &value)) {
    return std::nullopt;
  }
  return value;
}

absl::StatusOr<xrt::device> OpenXrt(uint32_t index) {
  xrt::device device;
  TANDEM_RETURN_IF_ERROR(Guarded("XRT", [&] { device = xrt::device(index); }));
  return device;
}

// The driver of the NPU that XRT has opened.
absl::StatusOr<std::unique_ptr<AmdxdnaSensors>> OpenDriver(const xrt::device& device) {
  std::string pci_address;
  TANDEM_RETURN_IF_ERROR(
      Guarded("XRT", [&] { pci_address = device.get_info<xrt::info::device::bdf>(); }));
  return AmdxdnaSensors::Open("/", pci_address);
}

// What a driver that was asked lately says.
absl::StatusOr<double> PowerOf(const AmdxdnaSensors& driver) {
  TANDEM_ASSIGN_OR_RETURN(const NpuReading reading, driver.Read(kAskPowerEvery));
  if (reading.watts.has_value()) return *reading.watts;
  return absl::UnimplementedError("this amdxdna driver reports no power");
}

bool IsPresent(const json& sensor) {
  const auto found = sensor.find("is_present");
  return found == sensor.end() || *found == "true" || *found == true;
}

}  // namespace

std::optional<double> PowerWatts(const std::string& electrical) {
  return NumberOf(json::parse(electrical, nullptr, /*allow_exceptions=*/false),
                  "power_consumption_watts");
}

std::optional<double> HottestCelsius(const std::string& thermal) {
  const json report = json::parse(thermal, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object() || !report.contains("thermals")) return std::nullopt;
  std::optional<double> hottest;
  for (const json& sensor : report["thermals"]) {
    const auto celsius = NumberOf(sensor, "temp_C");
    if (celsius.has_value() && IsPresent(sensor)) {
      hottest = std::max(hottest.value_or(*celsius), *celsius);
    }
  }
  return hottest;
}

struct NpuSensors::Impl {
  std::shared_ptr<const AmdxdnaSensors> driver;  // null where it has none
  Mutex mutex;
  xrt::device device ABSL_GUARDED_BY(mutex);
};

NpuSensors::NpuSensors() : impl_(std::make_unique<Impl>()) {}
NpuSensors::~NpuSensors() = default;

std::unique_ptr<NpuSensors> NpuSensors::Open(uint32_t index) {
  if (IsEmulated()) return nullptr;
  auto device = OpenXrt(index);
  if (!device.ok()) return nullptr;
  std::unique_ptr<NpuSensors> sensors(new NpuSensors);
  Impl& impl = *sensors->impl_;
  auto driver = OpenDriver(*device);
  if (driver.ok()) {
    impl.driver = *std::move(driver);
  } else {
    LogInfo("the NPU's driver is not asked for its load",
            {{"reason", std::string(driver.status().message())}});
  }
  MutexLock lock(impl.mutex);
  impl.device = *std::move(device);
  return sensors;
}

void NpuSensors::AddTo(const std::string& device, MetricSamples& samples) const {
  absl::StatusOr<NpuReading> driver = absl::UnimplementedError("");
  if (impl_->driver != nullptr) driver = impl_->driver->Read();
  NpuReading reading = driver.value_or(NpuReading());
  if (absl::IsUnimplemented(driver.status())) {
    std::string electrical, thermal;
    MutexLock lock(impl_->mutex);
    const xrt::device& xrt = impl_->device;
    (void)Guarded("power", [&] { electrical = xrt.get_info<xrt::info::device::electrical>(); });
    (void)Guarded("heat", [&] { thermal = xrt.get_info<xrt::info::device::thermal>(); });
    reading.watts = PowerWatts(electrical);
    reading.celsius = HottestCelsius(thermal);
  }
  if (reading.watts.has_value()) samples.Add(NpuSensorMetrics::kPower, *reading.watts, {device});
  if (reading.celsius.has_value()) {
    samples.Add(NpuSensorMetrics::kTemperature, *reading.celsius, {device});
  }
  for (size_t column = 0; column < reading.column_busy.size(); ++column) {
    samples.Add(NpuSensorMetrics::kColumnBusy, reading.column_busy[column],
                {device, absl::StrCat(column)});
  }
}

absl::StatusOr<std::function<absl::StatusOr<double>()>> OpenNpuPower(uint32_t index) {
  if (IsEmulated()) return absl::UnimplementedError("the NPU is emulated");
  TANDEM_ASSIGN_OR_RETURN(const xrt::device device, OpenXrt(index));
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<const AmdxdnaSensors> driver, OpenDriver(device));
  TANDEM_RETURN_IF_ERROR(PowerOf(*driver).status());
  return [driver] { return PowerOf(*driver); };
}

}  // namespace tandem::npu
