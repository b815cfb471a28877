// Activations in the kernels' formats, and the numbers they stand for.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "services/common/base/half.h"
#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/kernel_test_device.h"

namespace tandem::gpu {

// Where element k of a row of fragments lies, from its beginning: shaders/include/activation.glsl.
inline uint64_t FragmentByte(uint32_t k) {
  constexpr uint32_t kPlaces[] = {0, 2, 1, 3};
  const uint32_t t = k % 128 / 32, h = k % 32 / 16, q = k % 16 / 4;
  return k / 128 * 2048 + q * 512 + t * 16 + h * 8 + kPlaces[k % 4] * 2;
}

// Rows whose blocks of 32 quantise without doubt: every element lies within a quarter of a step
// from a whole number of steps, and one is the highest, 127 of them.  `cols`: a multiple of 32.
// `whole`: all are whole numbers of steps, and so exact in bfloat16.
struct TestActivations {
  TestActivations(uint32_t num_rows, uint32_t num_cols, uint32_t seed, bool whole = false)
      : rows(num_rows), cols(num_cols) {
    std::mt19937 random(seed);
    for (uint32_t block = 0; block < rows * cols / 32; ++block) {
      const float step = std::exp2(-static_cast<float>(random() % 8)) / 64.0f;
      for (uint32_t e = 0; e < 32; ++e) {
        const int q = e == block % 32 ? 127 : static_cast<int>(random() % 253) - 126;
        const float off =
            whole || e == block % 32 ? 0.0f : (static_cast<float>(random() % 9) - 4) / 16.0f;
        floats.push_back(step * (static_cast<float>(q) + off));
        quantized.push_back(static_cast<int8_t>(q));
        stand_for.push_back(step * static_cast<float>(q));
      }
      steps.push_back(step);
    }
  }

  std::vector<std::byte> Bytes(ActivationFormat format) const {
    const uint64_t row_bytes = ActivationRowBytes(format, cols);
    std::vector<std::byte> bytes(ActivationBytes(format, rows, cols), std::byte{0xA5});
    for (uint32_t r = 0; r < rows; ++r) {
      std::byte* row = bytes.data() + ActivationRowOffset(format, cols, r);
      const size_t first = size_t{r} * cols;
      if (format == ActivationFormat::kF32) {
        std::memcpy(row, &floats[first], row_bytes);
      } else if (format == ActivationFormat::kF16) {
        const auto halves = testing::FloatsToHalves(std::span(floats).subspan(first, cols));
        std::memcpy(row, halves.data(), row_bytes);
      } else if (format == ActivationFormat::kBf16) {
        for (uint32_t k = 0; k < cols; ++k) {
          const uint16_t bits = FloatToBf16(floats[first + k]);
          std::memcpy(row + k * 2, &bits, 2);
        }
      } else if (format == ActivationFormat::kFragments) {
        const auto halves = testing::FloatsToHalves(std::span(floats).subspan(first, cols));
        for (uint32_t k = 0; k < cols; ++k) std::memcpy(row + FragmentByte(k), &halves[k], 2);
      } else {
        for (uint32_t k = 0; k < cols; ++k) {
          std::byte* unit = row + uint64_t{k / kUnitElements} * kUnitBytes;
          std::memcpy(unit + k % kUnitElements, &quantized[first + k], 1);
          std::memcpy(unit + kUnitElements + k % kUnitElements / 32 * 4, &steps[(first + k) / 32],
                      4);
        }
      }
    }
    return bytes;
  }
  std::span<const float> row(uint32_t r, bool as_quantized) const {
    return std::span(as_quantized ? stand_for : floats).subspan(size_t{r} * cols, cols);
  }

  uint32_t rows, cols;
  std::vector<float> floats;     // exact in float16 too: 12 bits at most
  std::vector<float> stand_for;  // what the blocks mean
  std::vector<int8_t> quantized;
  std::vector<float> steps;  // of each block
};

// The numbers of a row of `cols` elements in memory; `steps`: of its blocks, for int8.
inline std::vector<float> ReadActivations(const std::byte* row, ActivationFormat format,
                                          uint32_t cols, std::vector<float>* steps = nullptr) {
  std::vector<float> values(cols);
  for (uint32_t k = 0; k < cols; ++k) {
    if (format == ActivationFormat::kF32) {
      std::memcpy(&values[k], row + k * 4, 4);
    } else if (format != ActivationFormat::kInt8) {
      uint16_t half = 0;
      std::memcpy(&half, row + (format == ActivationFormat::kF16 ? k * 2 : FragmentByte(k)), 2);
      values[k] = testing::HalvesToFloats({&half, 1})[0];
    } else {
      const std::byte* unit = row + uint64_t{k / kUnitElements} * kUnitBytes;
      float step = 0;
      std::memcpy(&step, unit + kUnitElements + k % kUnitElements / 32 * 4, 4);
      values[k] = step * static_cast<float>(static_cast<int8_t>(unit[k % kUnitElements]));
      if (steps != nullptr && k % 32 == 0) steps->push_back(step);
    }
  }
  return values;
}

}  // namespace tandem::gpu
