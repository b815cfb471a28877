// The tensors of a vision encoder.
#pragma once

#include <cstdint>
#include <span>

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

inline constexpr int kNumVisionRoles = static_cast<int>(VisionRole::kProjection) + 1;

// In order of their numbers.
std::span<const VisionRole> AllVisionRoles();
bool IsPerLayer(VisionRole role);
bool IsVector(VisionRole role);

}  // namespace tandem
