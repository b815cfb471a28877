#include "services/common/model/vision_config.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

absl::Status VisionInRange(const char* name, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("vision %s is %d, must be in [%d, %d]", name, value, low, high));
}

absl::Status Multiple(const char* name, uint64_t value, const char* divisor_name,
                      uint64_t divisor) {
  if (divisor != 0 && value % divisor == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("vision %s %d is not a multiple of %s %d", name,
                                                    value, divisor_name, divisor));
}

absl::Status Finite(const char* name, double value, bool positive) {
  if (std::isfinite(value) && (!positive || value > 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("vision %s is %g, must be %sfinite", name,
                                                    value, positive ? "positive and " : ""));
}

}  // namespace

uint32_t VisionConfig::tokens_per_side() const {
  return static_cast<uint32_t>(std::lround(std::sqrt(static_cast<double>(tokens_per_image))));
}

absl::Status VisionConfig::Validate() const {
  constexpr uint64_t kMaxDim = 1u << 20;
  TANDEM_RETURN_IF_ERROR(VisionInRange("image_size", image_size, 1, 4096));
  TANDEM_RETURN_IF_ERROR(VisionInRange("patch_size", patch_size, 1, 256));
  TANDEM_RETURN_IF_ERROR(Multiple("image_size", image_size, "patch_size", patch_size));
  TANDEM_RETURN_IF_ERROR(VisionInRange("patches of a side", patches_per_side(), 1, 256));
  TANDEM_RETURN_IF_ERROR(VisionInRange("num_layers", num_layers, 1, 1024));
  TANDEM_RETURN_IF_ERROR(VisionInRange("hidden_dim", hidden_dim, 1, kMaxDim));
  TANDEM_RETURN_IF_ERROR(VisionInRange("ffn_dim", ffn_dim, 1, kMaxDim));
  TANDEM_RETURN_IF_ERROR(VisionInRange("num_heads", num_heads, 1, 1024));
  TANDEM_RETURN_IF_ERROR(Multiple("hidden_dim", hidden_dim, "num_heads", num_heads));
  TANDEM_RETURN_IF_ERROR(VisionInRange("text_hidden_dim", text_hidden_dim, 1, kMaxDim));
  TANDEM_RETURN_IF_ERROR(VisionInRange("tokens_per_image", tokens_per_image, 1, num_patches()));
  if (tokens_per_side() * tokens_per_side() != tokens_per_image) {
    return absl::InvalidArgumentError(
        absl::StrFormat("vision tokens_per_image %d is no square number", tokens_per_image));
  }
  TANDEM_RETURN_IF_ERROR(
      Multiple("patches of a side", patches_per_side(), "tokens of a side", tokens_per_side()));
  TANDEM_RETURN_IF_ERROR(Finite("layer_norm_eps", layer_norm_eps, true));
  TANDEM_RETURN_IF_ERROR(Finite("rescale factor", pixels.rescale, true));
  for (int c = 0; c < 3; ++c) {
    TANDEM_RETURN_IF_ERROR(Finite("image_mean", pixels.mean[c], false));
    TANDEM_RETURN_IF_ERROR(Finite("image_std", pixels.std[c], true));
  }
  return absl::OkStatus();
}

}  // namespace tandem
