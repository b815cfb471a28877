#include "services/common/energy/gpu_energy.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem {

GpuEnergy::GpuEnergy(std::vector<std::unique_ptr<EnergySensor>> sensor)
    : meter_(std::move(sensor)) {
  meter_.Begin();
}

std::unique_ptr<GpuEnergy> GpuEnergy::Of(EnergySensors sensors) {
  std::erase_if(sensors.found, [](const auto& sensor) { return !sensor->of_gpu(); });
  if (sensors.found.size() != 1) return nullptr;
  return std::unique_ptr<GpuEnergy>(new GpuEnergy(std::move(sensors.found)));
}

std::unique_ptr<GpuEnergy> GpuEnergy::OfThisMachine() {
  EnergySensors sensors = FindSysfsSensors("/");
  EnergySensors nvml = FindNvmlSensors();
  std::move(nvml.found.begin(), nvml.found.end(), std::back_inserter(sensors.found));
  return Of(std::move(sensors));
}

void GpuEnergy::AddTo(const std::string& worker, MetricSamples& samples) const {
  for (const EnergyReading& reading : meter_.Joules()) {
    samples.Add(EnergyMetrics::kJoules, reading.joules, {worker});
  }
}

}  // namespace tandem
