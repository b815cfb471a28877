// How many layers an NPU is to have, whole, beside a GPU that has the others.  Pure data.
#pragma once

#include <cstdint>

#include "services/gateway/placement/placement_costs.h"

namespace tandem::gateway {

// Of a model's layers, so many are the NPU's at first, to see what a layer takes there.
uint32_t FirstNpuLayers(uint32_t num_layers);

// What steps take with the model on the GPU alone, and with `npu_layers` of its layers on the NPU.
struct LayerCosts {
  PlacementCosts gpu;   // one worker
  PlacementCosts both;  // the GPU, then the NPU
  uint32_t npu_layers = 0;
  uint32_t num_layers = 0;
};
// The costs with `npu_layers` on the NPU: a layer takes there, and takes the GPU, as long as any other.
// REQUIRES 0 < npu_layers < costs.num_layers
PlacementCosts PredictCosts(const LayerCosts& costs, uint32_t npu_layers);

// The number with which a request of the load takes the least time; 0: none takes a twentieth less than
// the better of the two that were measured.
uint32_t BetterNpuLayers(const LayerCosts& costs, const ReferenceLoad& load);

}  // namespace tandem::gateway
