// Memory formats of the activations that matmuls read.  shaders/include/activation.glsl is the same
// for kernels and defines each format.
#pragma once

#include <cstdint>

namespace tandem::gpu {

enum class ActivationFormat : uint32_t {
  kF32 = 0,
  kF16 = 1,   // value = element * the tensor's scale
  kInt8 = 2,  // units of 256 elements in blocks of 32
};

inline constexpr uint32_t kUnitElements = 256;
inline constexpr uint32_t kUnitBytes = 288;  // 256 int8, 8 float32 scales

// Scale of GeGLU's outputs in float16: they reach 4.2e6, in steps of 3.8e-6 near zero.
inline constexpr float kGegluHalfScale = 64.0f;

// Bytes of a row, which is also the distance between rows.
constexpr uint64_t ActivationRowBytes(ActivationFormat format, uint64_t cols) {
  switch (format) {
    case ActivationFormat::kF32:
      return cols * 4;
    case ActivationFormat::kF16:
      return cols * 2;
    case ActivationFormat::kInt8:
      return (cols + kUnitElements - 1) / kUnitElements * kUnitBytes;
  }
  return 0;
}

// Bytes of a row in the format that takes most.
constexpr uint64_t LargestActivationRowBytes(uint64_t cols) {
  const uint64_t floats = ActivationRowBytes(ActivationFormat::kF32, cols);
  const uint64_t blocks = ActivationRowBytes(ActivationFormat::kInt8, cols);
  return floats > blocks ? floats : blocks;
}

}  // namespace tandem::gpu
