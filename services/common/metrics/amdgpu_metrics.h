// What the amdgpu driver reports of its devices: load, memory, power, temperature.
//
// Source: the kernel's Documentation/gpu/amdgpu (driver-misc, thermal) and hwmon's sysfs interface.
// Not verified on hardware.
#pragma once

#include <string>
#include <vector>

#include "services/common/metrics/metric_spec.h"

namespace tandem {

struct AmdgpuMetrics {
  static constexpr MetricSpec kBusy{
      "tandem_amdgpu_busy_ratio",
      MetricType::kGauge,
      "Load of the graphics engine as the driver measures it, 0 to 1.",
      {"card"}};
  static constexpr MetricSpec kMemoryUsed{
      "tandem_amdgpu_memory_used_bytes",
      MetricType::kGauge,
      "Memory in use by all processes, bytes: vram, or gtt for the host's.",
      {"card", "heap"}};
  static constexpr MetricSpec kMemoryTotal{
      "tandem_amdgpu_memory_bytes", MetricType::kGauge, "Memory in all, bytes.", {"card", "heap"}};
  static constexpr MetricSpec kPower{
      "tandem_amdgpu_power_watts", MetricType::kGauge, "Power draw, watts.", {"card"}};
  static constexpr MetricSpec kTemperature{"tandem_amdgpu_temperature_celsius",
                                           MetricType::kGauge,
                                           "Temperature at the device's edge, degrees Celsius.",
                                           {"card"}};
  static std::vector<MetricSpec> All();
};

// `root` is "/" but in tests.  What a device does not report is left out.
void AddAmdgpuMetrics(const std::string& root, MetricSamples& samples);

}  // namespace tandem
