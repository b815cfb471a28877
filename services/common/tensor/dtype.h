// Number formats of weights and activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tandem {

// Values travel in manifests and are specialisation constants of shaders: never renumber.
// Source of the block formats: ggml's quantisation layouts as used in GGUF files (see quant.h).
enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kBf16 = 2,
  kQ8_0 = 3,  // blocks of 32: f16 scale d, int8 q[32];             x = d*q
  kQ4_0 = 4,  // blocks of 32: f16 scale d, nibbles q[32];          x = d*(q-8)
  kQ6_K = 5,  // blocks of 256: 6-bit q, int8 sub-scale per 16, f16 d;  x = d*s*(q-32)
  kQ4_K =
      6,  // blocks of 256: nibbles, 6-bit scale and min per 32, f16 d, dmin;  x = d*s*q - dmin*m
  kQ5_K = 7,   // the same with 5-bit q
  kQ5_0 = 8,   // blocks of 32: f16 scale d, 5-bit q[32];        x = d*(q-16)
  kIq4Nl = 9,  // blocks of 32: f16 scale d, nibbles q[32];     x = d*table[q]
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
