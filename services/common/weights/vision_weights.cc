#include "services/common/weights/vision_weights.h"

#include <array>

#include "services/common/weights/dequantize.h"
#include "services/common/weights/weight_set.h"

namespace tandem {
namespace {

constexpr std::array<VisionRole, kNumVisionRoles> MakeVisionRoles() {
  std::array<VisionRole, kNumVisionRoles> roles{};
  for (int i = 0; i < kNumVisionRoles; ++i) roles[i] = static_cast<VisionRole>(i);
  return roles;
}
constexpr std::array<VisionRole, kNumVisionRoles> kVisionRoles = MakeVisionRoles();

}  // namespace

std::span<const VisionRole> AllVisionRoles() { return kVisionRoles; }

bool IsPerLayer(VisionRole role) {
  return role >= VisionRole::kNorm1Weight && role <= VisionRole::kDownBias;
}

bool IsVector(VisionRole role) {
  switch (role) {
    case VisionRole::kPatchWeight:
    case VisionRole::kPositions:
    case VisionRole::kQWeight:
    case VisionRole::kKWeight:
    case VisionRole::kVWeight:
    case VisionRole::kOutWeight:
    case VisionRole::kUpWeight:
    case VisionRole::kDownWeight:
    case VisionRole::kProjection:
      return false;
    default:
      return true;
  }
}

Shape2D VisionShape(VisionRole role, const VisionConfig& config) {
  switch (role) {
    case VisionRole::kPatchWeight:
      return {config.hidden_dim, config.patch_dim()};
    case VisionRole::kPositions:
      return {config.num_patches(), config.hidden_dim};
    case VisionRole::kQWeight:
    case VisionRole::kKWeight:
    case VisionRole::kVWeight:
    case VisionRole::kOutWeight:
      return {config.hidden_dim, config.hidden_dim};
    case VisionRole::kUpWeight:
      return {config.ffn_dim, config.hidden_dim};
    case VisionRole::kUpBias:
      return {1, config.ffn_dim};
    case VisionRole::kDownWeight:
      return {config.hidden_dim, config.ffn_dim};
    case VisionRole::kProjection:
      return {config.hidden_dim, config.text_hidden_dim};
    default:
      return {1, config.hidden_dim};
  }
}

VisionWeights DequantizeVision(const WeightSet& weights) {
  VisionWeights vision;
  vision.config = *weights.config().vision;
  for (const PackedTensor& tensor : weights.vision_tensors()) {
    vision.tensors[{ToVisionRole(tensor.role), tensor.layer_idx}] =
        DequantizeTensor(weights, tensor);
  }
  return vision;
}

}  // namespace tandem
