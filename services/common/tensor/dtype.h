// Number formats of weights and activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tandem {

// Source of the block formats: ggml's quantisation layouts as used in GGUF files (see quant.h).
enum class DType : uint32_t {
#include "services/common/tensor/dtype_numbers.inc"
};
inline constexpr int kNumDTypes = 10;

// All of them, in order of their numbers.
std::span<const DType> AllDTypes();

struct DTypeTraits {
  std::string_view name;    // as printed: "q4_0"
  uint32_t block_elements;  // elements per block along a row (1 for plain formats)
  uint32_t block_bytes;     // bytes per block in a file
};

const DTypeTraits& Traits(DType dtype);

// Bytes of one row of `num_elements` elements; REQUIRES num_elements % block_elements == 0.
size_t RowBytes(DType dtype, size_t num_elements);

}  // namespace tandem
