// What the driver and XRT report of an NPU: load of its columns, power, temperature.
//
// If the driver has no sensors (amdxdna_sensors.h), XRT's are used: xrt::device::get_info,
// device::electrical and device::thermal (JSON, numbers as text).  Not verified on hardware; the
// emulated NPU answers no queries.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/metrics/metric_spec.h"

namespace tandem::npu {

struct NpuSensorMetrics {
  static constexpr MetricSpec kPower{"tandem_npu_power_watts",
                                     MetricType::kGauge,
                                     "Power draw as the driver or XRT reports it, watts.",
                                     {"device"}};
  static constexpr MetricSpec kTemperature{
      "tandem_npu_temperature_celsius",
      MetricType::kGauge,
      "Temperature as the driver reports it, or of the hottest of XRT's sensors, degrees Celsius.",
      {"device"}};
  static constexpr MetricSpec kColumnBusy{
      "tandem_npu_column_busy_ratio",
      MetricType::kGauge,
      "Load of a column of the NPU by all processes, as the driver reports it, 0 to 1.",
      {"device", "column"}};
  static std::vector<MetricSpec> All() { return {kPower, kTemperature, kColumnBusy}; }
};

// Of the texts that XRT answers; nullopt where they have no such number.
std::optional<double> PowerWatts(const std::string& electrical);
std::optional<double> HottestCelsius(const std::string& thermal);

// Has its own handle on the device, separate from the worker's.  Thread-safe.
class NpuSensors {
 public:
  // Null where XRT cannot open NPU `index`, or it is the emulated one.
  static std::unique_ptr<NpuSensors> Open(uint32_t index);
  ~NpuSensors();

  // `device`: the label.  Leaves out values that no source reports.  Does not wake an NPU.
  void AddTo(const std::string& device, MetricSamples& samples) const;

 private:
  NpuSensors();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads the power of NPU `index`, watts, by its driver, which is asked twice a second at most.  Holds
// no handle of XRT's.  UNIMPLEMENTED: the emulated NPU, or a driver that reports no power; otherwise
// as AmdxdnaSensors.
absl::StatusOr<std::function<absl::StatusOr<double>()>> OpenNpuPower(uint32_t index);

}  // namespace tandem::npu
