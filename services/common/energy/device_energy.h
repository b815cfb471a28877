// The energy of a worker's own device, where this machine can say it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "services/common/energy/energy.h"
#include "services/common/energy/power_window.h"
#include "services/common/energy/sensor_in_use.h"
#include "services/common/metrics/metric_spec.h"

namespace tandem {

struct EnergyMetrics {
  static constexpr MetricSpec kJoules{
      "tandem_device_energy_joules_total",
      MetricType::kCounter,
      "Energy that the device's own sensor reports since the worker's start, joules.",
      {"worker"}};
  static std::vector<MetricSpec> All() { return {kJoules}; }
};

// Counts from its start.  Thread-safe.
class DeviceEnergy {
 public:
  explicit DeviceEnergy(std::unique_ptr<EnergySensor> sensor);

  // Uses the only GPU sensor among `sensors`.  Null without one, and with several: Vulkan's names
  // do not say which of them is the worker's device.
  static std::unique_ptr<DeviceEnergy> OfOneGpu(EnergySensors sensors);
  // Among those of this machine: NVML's, amdgpu's.
  static std::unique_ptr<DeviceEnergy> OfThisMachinesGpu();

  // The sensor's.
  const std::string& name() const { return name_; }
  // Of a sensor whose reading wakes the device: it is read only while watts() is asked for.
  static std::unique_ptr<DeviceEnergy> WhileInUse(std::string name, SensorInUse::ReadWatts read);

  // Mean power over about the last second, watts; 0: not known yet, or the sensor has failed.
  // Thread-safe.
  double watts() const {
    if (in_use_ != nullptr) in_use_->Use();
    return watts_.load(std::memory_order_relaxed);
  }
  // Nothing once the sensor has failed.
  void AddTo(const std::string& worker, MetricSamples& samples) const;

 private:
  void Sampled(const std::vector<EnergyReading>& readings);

  const std::string name_;
  SensorInUse* in_use_ = nullptr;  // the meter's; null: its sensor is always read
  PowerWindow window_;             // used by Sampled alone
  std::atomic<double> watts_{0.0};
  EnergyMeter meter_;  // its thread uses the members above
};

}  // namespace tandem
