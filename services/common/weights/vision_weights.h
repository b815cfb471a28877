// The weights of a vision encoder, by role, as float32.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "services/common/model/vision_config.h"
#include "services/common/weights/packed_tensor.h"

namespace tandem {

enum class VisionRole : uint8_t {
  kPatchWeight,  // [hidden_dim, 3, patch_size, patch_size]
  kPatchBias,    // [hidden_dim]
  kPositions,    // [num_patches, hidden_dim]
  // These once per layer.  Norms are LayerNorms, with weight and bias [hidden_dim].
  kNorm1Weight,
  kNorm1Bias,
  kQWeight,  // [hidden_dim, hidden_dim], this and the three below; biases [hidden_dim]
  kQBias,
  kKWeight,
  kKBias,
  kVWeight,
  kVBias,
  kOutWeight,
  kOutBias,
  kNorm2Weight,
  kNorm2Bias,
  kUpWeight,    // [ffn_dim, hidden_dim]
  kUpBias,      // [ffn_dim]
  kDownWeight,  // [hidden_dim, ffn_dim]
  kDownBias,    // [hidden_dim]
  // After the layers.
  kPostNormWeight,  // [hidden_dim]
  kPostNormBias,    // [hidden_dim]
  kProjectionNorm,  // [hidden_dim], of the RMSNorm before the projection: 1 + w
  kProjection,      // [hidden_dim, text_hidden_dim]: a soft token is x W, not W x
};

// In order of their numbers.
std::span<const VisionRole> AllVisionRoles();
bool IsPerLayer(VisionRole role);
// Vectors: [1, n].  The patch convolution's kernels are the rows of its matrix.
Shape2D VisionShape(VisionRole role, const VisionConfig& config);
bool IsVector(VisionRole role);

// Every tensor of the encoder, [rows * cols] each.
struct VisionWeights {
  VisionConfig config;
  std::map<std::pair<VisionRole, uint32_t>, std::vector<float>> tensors;  // role, layer

  // REQUIRES it has the tensor.
  const std::vector<float>& at(VisionRole role, uint32_t layer_idx = 0) const {
    return tensors.at({role, layer_idx});
  }
};

}  // namespace tandem
