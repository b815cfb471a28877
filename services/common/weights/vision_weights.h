// The weights of a vision encoder, by role, as float32.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "services/common/model/vision_config.h"
#include "services/common/weights/packed_tensor.h"
#include "services/common/weights/vision_role.h"

namespace tandem {

// Vectors: [1, n].  The patch convolution's kernels are the rows of its matrix.
Shape2D VisionShape(VisionRole role, const VisionConfig& config);

// Every tensor of the encoder, [rows * cols] each.
struct VisionWeights {
  VisionConfig config;
  std::map<std::pair<VisionRole, uint32_t>, std::vector<float>> tensors;  // role, layer

  // REQUIRES it has the tensor.
  const std::vector<float>& at(VisionRole role, uint32_t layer_idx = 0) const {
    return tensors.at({role, layer_idx});
  }
};

class WeightSet;
// The encoder's tensors of a model, dequantised.  REQUIRES weights.config().vision.
VisionWeights DequantizeVision(const WeightSet& weights);

}  // namespace tandem
