#include "services/common/tensor/kv_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"

namespace tandem {
namespace {

constexpr size_t kQ8Block = 32;

uint16_t LoadHalf(std::span<const std::byte> bytes, size_t at) {
  uint16_t half = 0;
  std::memcpy(&half, bytes.data() + at, sizeof(half));
  return half;
}

void StoreHalf(std::span<std::byte> bytes, size_t at, uint16_t half) {
  std::memcpy(bytes.data() + at, &half, sizeof(half));
}

}  // namespace

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

void EncodeKvPage(DType dtype, std::span<const float> values, std::span<std::byte> page) {
  if (dtype == DType::kF16) {
    for (size_t i = 0; i < values.size(); ++i) StoreHalf(page, 2 * i, FloatToHalf(values[i]));
    return;
  }
  std::ranges::fill(page, std::byte{0});
  for (size_t block = 0; block < values.size() / kQ8Block; ++block) {
    const std::span<const float> x = values.subspan(block * kQ8Block, kQ8Block);
    float highest = 0;
    for (const float value : x) highest = std::max(highest, std::abs(value));
    const float inverse = highest > 0 ? 127.0f / highest : 0.0f;
    for (size_t i = 0; i < kQ8Block; ++i) {
      const auto rounded = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
      page[block * kQ8Block + i] = static_cast<std::byte>(rounded);
    }
    StoreHalf(page, values.size() + 2 * block, FloatToHalf(highest / 127.0f));
  }
}

void DecodeKvPage(DType dtype, std::span<const std::byte> page, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF16) {
      values[i] = HalfToFloat(LoadHalf(page, 2 * i));
    } else {
      const float scale = HalfToFloat(LoadHalf(page, values.size() + i / kQ8Block * 2));
      values[i] = scale * static_cast<float>(static_cast<int8_t>(page[i]));
    }
  }
}

}  // namespace tandem
