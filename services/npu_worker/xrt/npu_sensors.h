// What XRT reports of an NPU's power and temperature.
//
// Source: XRT's xrt::device::get_info, device::electrical and device::thermal (JSON, numbers as
// text).  XRT has no public query for the columns in use.  Not verified on hardware; the emulated
// NPU answers no queries.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/common/metrics/metric_spec.h"

namespace tandem::npu {

struct NpuSensorMetrics {
  static constexpr MetricSpec kPower{"tandem_npu_power_watts",
                                     MetricType::kGauge,
                                     "Power draw by XRT's report, watts.",
                                     {"device"}};
  static constexpr MetricSpec kTemperature{
      "tandem_npu_temperature_celsius",
      MetricType::kGauge,
      "Temperature of the hottest of the sensors that XRT reports, degrees Celsius.",
      {"device"}};
  static std::vector<MetricSpec> All() { return {kPower, kTemperature}; }
};

// Of the texts that XRT answers; nullopt where they have no such number.
std::optional<double> PowerWatts(const std::string& electrical);
std::optional<double> HottestCelsius(const std::string& thermal);

// A handle of its own on the device, apart from the one that works.  Thread-safe.
class NpuSensors {
 public:
  // Null where XRT cannot open NPU `index`, or it is the emulated one.
  static std::unique_ptr<NpuSensors> Open(uint32_t index);
  ~NpuSensors();

  // `device`: the label.  What XRT does not say is left out.
  void AddTo(const std::string& device, MetricSamples& samples) const;

 private:
  NpuSensors();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::npu
