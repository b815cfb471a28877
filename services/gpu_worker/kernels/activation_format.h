// Memory formats of the activations that matmuls read.  shaders/include/activation.glsl is the same
// for kernels and defines each format.
#pragma once

#include <cstdint>

namespace tandem::gpu {

enum class ActivationFormat : uint32_t {
  kF32 = 0,
  kF16 = 1,        // value = element * the tensor's scale
  kInt8 = 2,       // units of 256 elements in blocks of 32
  kFragments = 3,  // as kF16, in the order in which lanes of matrices read them
  kBf16 = 4,  // attention that another worker computed; matmuls read it, nothing here writes it
};

inline constexpr uint32_t kUnitElements = 256;
inline constexpr uint32_t kUnitBytes = 288;  // 256 int8, 8 float32 scales
inline constexpr uint32_t kFragmentElements = 128;

// Scale of GeGLU's outputs in float16: they reach 4.2e6, in steps of 3.8e-6 near zero.
inline constexpr float kGegluHalfScale = 64.0f;

// Bytes of a row.
constexpr uint64_t ActivationRowBytes(ActivationFormat format, uint64_t cols) {
  switch (format) {
    case ActivationFormat::kF32:
      return cols * 4;
    case ActivationFormat::kF16:
    case ActivationFormat::kBf16:
      return cols * 2;
    case ActivationFormat::kInt8:
      return (cols + kUnitElements - 1) / kUnitElements * kUnitBytes;
    case ActivationFormat::kFragments:
      return (cols + kFragmentElements - 1) / kFragmentElements * kFragmentElements * 2;
  }
  return 0;
}

// Where row `row` begins.  Fragments interleave eight rows.
constexpr uint64_t ActivationRowOffset(ActivationFormat format, uint64_t cols, uint64_t row) {
  const uint64_t bytes = ActivationRowBytes(format, cols);
  if (format != ActivationFormat::kFragments) return row * bytes;
  return row / 8 * 8 * bytes + row % 8 * 64;
}

// Bytes of `rows` rows.
constexpr uint64_t ActivationBytes(ActivationFormat format, uint64_t rows, uint64_t cols) {
  const uint64_t whole = format == ActivationFormat::kFragments ? (rows + 7) / 8 * 8 : rows;
  return whole * ActivationRowBytes(format, cols);
}
// The same in the format that takes most.
constexpr uint64_t LargestActivationBytes(uint64_t rows, uint64_t cols) {
  uint64_t most = 0;
  using enum ActivationFormat;
  for (const ActivationFormat format : {kF32, kInt8, kFragments}) {
    const uint64_t bytes = ActivationBytes(format, rows, cols);
    if (bytes > most) most = bytes;
  }
  return most;
}

}  // namespace tandem::gpu
