#include "services/common/tensor/kv_format.h"

#include "absl/strings/str_format.h"

namespace tandem {

absl::Status CheckKvHeads(DType dtype, uint32_t head_dim) {
  if (dtype != DType::kQ8_0 || head_dim % 64 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "a q8_0 KV cache needs head sizes that are multiples of 64, not %d", head_dim));
}

absl::StatusOr<DType> ParseKvDType(std::string_view text) {
  for (const DType dtype : AllDTypes()) {
    if (IsKvDType(dtype) && Traits(dtype).name == text) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("KV cache of '%s': must be f16 or q8_0", std::string(text)));
}

uint64_t KvPageBytes(DType dtype, uint32_t block_tokens, uint32_t head_dim) {
  const uint64_t bytes = block_tokens * uint64_t{RowBytes(dtype, head_dim)};
  return dtype == DType::kF16 ? bytes : (bytes + 15) / 16 * 16;
}

}  // namespace tandem
