#include "services/common/energy/device_energy.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem {
namespace {

std::vector<std::unique_ptr<EnergySensor>> ListOf(std::unique_ptr<EnergySensor> sensor) {
  std::vector<std::unique_ptr<EnergySensor>> sensors;
  sensors.push_back(std::move(sensor));
  return sensors;
}

}  // namespace

DeviceEnergy::DeviceEnergy(std::unique_ptr<EnergySensor> sensor)
    : meter_(ListOf(std::move(sensor))) {
  meter_.Begin();
}

std::unique_ptr<DeviceEnergy> DeviceEnergy::OfOneGpu(EnergySensors sensors) {
  std::erase_if(sensors.found, [](const auto& sensor) { return !sensor->of_gpu(); });
  if (sensors.found.size() != 1) return nullptr;
  return std::make_unique<DeviceEnergy>(std::move(sensors.found[0]));
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
