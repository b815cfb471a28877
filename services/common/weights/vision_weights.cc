#include "services/common/weights/vision_weights.h"

#include <array>

namespace tandem {
namespace {

constexpr size_t kNumVisionRoles = static_cast<size_t>(VisionRole::kProjection) + 1;

constexpr std::array<VisionRole, kNumVisionRoles> MakeVisionRoles() {
  std::array<VisionRole, kNumVisionRoles> roles{};
  for (size_t i = 0; i < kNumVisionRoles; ++i) roles[i] = static_cast<VisionRole>(i);
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

}  // namespace tandem
