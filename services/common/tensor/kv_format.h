// Number formats of the KV cache.
//
//   kF16   the values of k and v unchanged
//   kQ8_0  blocks of 32 along a head: scale * int8.  The scale is a float16: the block's highest
//          magnitude / 127.  17 bytes for 16 values; float16 takes 32.  REQUIRES head sizes that
//          are multiples of 64.
//
// A *page* is the K, or the V, of one KV head in a block: [block_tokens, head_dim].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"

namespace tandem {

// Whether the cache of any worker can have the format.
constexpr bool IsKvDType(DType dtype) { return dtype == DType::kF16 || dtype == DType::kQ8_0; }

// INVALID_ARGUMENT: why heads of this size cannot be kept in `dtype`.
absl::Status CheckKvHeads(DType dtype, uint32_t head_dim);

// "f16" or "q8_0"; INVALID_ARGUMENT for anything else.
absl::StatusOr<DType> ParseKvDType(std::string_view text);

// Bytes of a page, filled up to a multiple of 16 where its parts would not be aligned.
// REQUIRES IsKvDType(dtype).
uint64_t KvPageBytes(DType dtype, uint32_t block_tokens, uint32_t head_dim);

// A page of float32 [block_tokens, head_dim], rounded to the format, and back.  What was decoded is
// encoded to the same bytes.
// REQUIRES IsKvDType(dtype) and `page` of KvPageBytes.
void EncodeKvPage(DType dtype, std::span<const float> values, std::span<std::byte> page);
void DecodeKvPage(DType dtype, std::span<const std::byte> page, std::span<float> values);

}  // namespace tandem
