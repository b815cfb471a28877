#include "services/gateway/placement/npu_layers.h"

#include <algorithm>
#include <vector>

#include "services/common/base/check.h"

namespace tandem::gateway {
namespace {

constexpr double kGain = 0.05;  // of a request's time, for another number to be tried

double Seconds(const PlacementCosts& costs, const ReferenceLoad& load) {
  return RequestSeconds(costs, load,
                        {.device = std::vector<double>(costs.lone.device.size(), 1.0)});
}

StepSeconds Predict(const StepSeconds& gpu, const StepSeconds& both, double share) {
  return {.device = {std::max(0.0, gpu.device[0] + share * (both.device[0] - gpu.device[0])),
                     share * both.device[1]},
          .other = both.other};
}

}  // namespace

uint32_t FirstNpuLayers(uint32_t num_layers) { return std::max(1u, num_layers / 4); }

PlacementCosts PredictCosts(const LayerCosts& costs, uint32_t npu_layers) {
  TANDEM_CHECK(costs.gpu.lone.device.size() == 1 && costs.both.lone.device.size() == 2);
  const double share = static_cast<double>(npu_layers) / costs.npu_layers;
  PlacementCosts predicted = costs.both;
  predicted.prompt = Predict(costs.gpu.prompt, costs.both.prompt, share);
  predicted.lone = Predict(costs.gpu.lone, costs.both.lone, share);
  predicted.full = Predict(costs.gpu.full, costs.both.full, share);
  return predicted;
}

uint32_t BetterNpuLayers(const LayerCosts& costs, const ReferenceLoad& load) {
  double least = (1.0 - kGain) * std::min(Seconds(costs.gpu, load), Seconds(costs.both, load));
  uint32_t best = 0;
  for (uint32_t layers = 1; layers < costs.num_layers; ++layers) {
    const double seconds = Seconds(PredictCosts(costs, layers), load);
    if (seconds >= least) continue;
    least = seconds;
    best = layers;
  }
  return best == costs.npu_layers ? 0 : best;
}

}  // namespace tandem::gateway
