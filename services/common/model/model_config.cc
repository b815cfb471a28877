#include "services/common/model/model_config.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

absl::Status InRange(const char* name, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d, must be in [%d, %d]", name, value, low, high));
}

absl::Status PositiveFinite(const char* name, float value) {
  if (std::isfinite(value) && value > 0.0f) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %g, must be positive and finite", name, value));
}

}  // namespace

absl::Status ModelConfig::Validate() const {
  constexpr uint64_t kMaxDim = 1u << 20;
  TANDEM_RETURN_IF_ERROR(InRange("num_layers", num_layers, 1, 1024));
  TANDEM_RETURN_IF_ERROR(InRange("hidden_dim", hidden_dim, 1, kMaxDim));
  TANDEM_RETURN_IF_ERROR(InRange("ffn_dim", ffn_dim, 1, kMaxDim));
  TANDEM_RETURN_IF_ERROR(InRange("num_heads", num_heads, 1, 1024));
  TANDEM_RETURN_IF_ERROR(InRange("num_kv_heads", num_kv_heads, 1, num_heads));
  TANDEM_RETURN_IF_ERROR(InRange("head_dim", head_dim, 2, 1024));
  TANDEM_RETURN_IF_ERROR(InRange("vocab_size", vocab_size, 1, 1u << 22));
  TANDEM_RETURN_IF_ERROR(InRange("context_len", context_len, 1, 1u << 24));
  TANDEM_RETURN_IF_ERROR(InRange("sliding_window", sliding_window, 1, 1u << 24));
  if (num_heads % num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "num_heads %d is not a multiple of num_kv_heads %d", num_heads, num_kv_heads));
  }
  if (head_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("head_dim %d is odd", head_dim));
  }
  if (layer_is_global.size() != num_layers) {
    return absl::InvalidArgumentError(absl::StrFormat("layer_types has %d entries for %d layers",
                                                      layer_is_global.size(), num_layers));
  }
  TANDEM_RETURN_IF_ERROR(PositiveFinite("rope_theta_global", rope_theta_global));
  TANDEM_RETURN_IF_ERROR(PositiveFinite("rope_theta_local", rope_theta_local));
  TANDEM_RETURN_IF_ERROR(PositiveFinite("rope_scale_global", rope_scale_global));
  TANDEM_RETURN_IF_ERROR(PositiveFinite("attention_scale", attention_scale));
  TANDEM_RETURN_IF_ERROR(PositiveFinite("embedding_scale", embedding_scale));
  TANDEM_RETURN_IF_ERROR(PositiveFinite("rms_norm_eps", rms_norm_eps));
  const auto vocab = static_cast<int64_t>(vocab_size);
  if (bos_token_id < -1 || bos_token_id >= vocab) {
    return absl::InvalidArgumentError(
        absl::StrFormat("bos_token_id %d is outside the vocabulary of %d", bos_token_id, vocab));
  }
  if (vision.has_value()) {
    TANDEM_RETURN_IF_ERROR(vision->Validate());
    if (vision->text_hidden_dim != hidden_dim) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "soft tokens of the vision encoder have %d numbers, rows of the decoder %d",
          vision->text_hidden_dim, hidden_dim));
    }
  }
  for (const int32_t id : stop_token_ids) {
    if (id < 0 || id >= vocab) {
      return absl::InvalidArgumentError(
          absl::StrFormat("stop token %d is outside the vocabulary of %d", id, vocab));
    }
  }
  return absl::OkStatus();
}

std::vector<bool> EverySixthGlobal(uint32_t num_layers, uint32_t pattern) {
  std::vector<bool> global(num_layers);
  for (uint32_t i = 0; i < num_layers; ++i) global[i] = pattern != 0 && (i + 1) % pattern == 0;
  return global;
}

}  // namespace tandem
