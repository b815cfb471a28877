#include "services/common/energy/device_energy.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "services/common/base/clock.h"

namespace tandem {
namespace {

std::vector<std::unique_ptr<EnergySensor>> ListOf(std::unique_ptr<EnergySensor> sensor) {
  std::vector<std::unique_ptr<EnergySensor>> sensors;
  sensors.push_back(std::move(sensor));
  return sensors;
}

}  // namespace

DeviceEnergy::DeviceEnergy(std::unique_ptr<EnergySensor> sensor)
    : name_(sensor->name()),
      meter_(ListOf(std::move(sensor)),
             [this](const std::vector<EnergyReading>& readings) { Sampled(readings); }) {
  meter_.Begin();
}

void DeviceEnergy::Sampled(const std::vector<EnergyReading>& readings) {
  if (readings.empty()) return watts_.store(0.0, std::memory_order_relaxed);
  window_.Add(1e-9 * static_cast<double>(NowNanos()), readings[0].joules);
  watts_.store(window_.Watts(), std::memory_order_relaxed);
}

std::unique_ptr<DeviceEnergy> DeviceEnergy::WhileInUse(std::string name,
                                                       SensorInUse::ReadWatts read) {
  auto sensor = std::make_unique<SensorInUse>(std::move(name), std::move(read));
  SensorInUse* const in_use = sensor.get();
  auto energy = std::make_unique<DeviceEnergy>(std::move(sensor));
  energy->in_use_ = in_use;
  return energy;
}

std::unique_ptr<DeviceEnergy> DeviceEnergy::OfOneGpu(EnergySensors sensors) {
  std::erase_if(sensors.found, [](const auto& sensor) { return !sensor->of_gpu(); });
  if (sensors.found.size() != 1) return nullptr;
  std::unique_ptr<EnergySensor> found = std::move(sensors.found[0]);
  // A reading of amdgpu's power keeps the GPU from falling asleep; NVML has a counter.
  if (found->counts_joules()) return std::make_unique<DeviceEnergy>(std::move(found));
  const std::shared_ptr<EnergySensor> sensor = std::move(found);
  return WhileInUse(sensor->name(), [sensor] { return sensor->Read(); });
}

std::unique_ptr<DeviceEnergy> DeviceEnergy::OfThisMachinesGpu() {
  EnergySensors sensors = FindSysfsSensors("/");
  EnergySensors nvml = FindNvmlSensors();
  std::move(nvml.found.begin(), nvml.found.end(), std::back_inserter(sensors.found));
  return OfOneGpu(std::move(sensors));
}

void DeviceEnergy::AddTo(const std::string& worker, MetricSamples& samples) const {
  for (const EnergyReading& reading : meter_.Joules()) {
    samples.Add(EnergyMetrics::kJoules, reading.joules, {worker});
  }
}

}  // namespace tandem
