// How numbers are rounded into blocks: scales from the largest magnitude, codes to the nearest.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "services/common/tensor/block_codecs.h"

namespace tandem::codecs {
namespace {

int RoundClamped(float value, int low, int high) {
  return static_cast<int>(std::clamp<long>(std::lrint(value), low, high));
}

// The element of largest magnitude, with its sign.
float Extreme(const float* x, uint32_t n) {
  return *std::max_element(x, x + n, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

float Reciprocal(float value) { return value == 0.0f ? 0.0f : 1.0f / value; }

}  // namespace

void Q8_0::Quantize(const float* x, Block& block) {
  block.d = FloatToHalf(std::fabs(Extreme(x, kElements)) / 127.0f);
  const float inverse = Reciprocal(HalfToFloat(block.d));
  for (uint32_t e = 0; e < kElements; ++e) {
    block.q[e] = static_cast<uint8_t>(RoundClamped(x[e] * inverse, -127, 127));
  }
}

// The extreme maps to -8, the end of the range that has no opposite.
void Q4_0::Quantize(const float* x, Block& block) {
  block.d = FloatToHalf(Extreme(x, kElements) / -8.0f);
  const float inverse = Reciprocal(HalfToFloat(block.d));
  for (uint32_t e = 0; e < kElements; ++e) {
    block.q[e] = static_cast<uint8_t>(RoundClamped(x[e] * inverse, -8, 7) + 8);
  }
}

// The extreme maps to -127, the end of the table that has no opposite.
void Iq4Nl::Quantize(const float* x, Block& block) {
  block.d = FloatToHalf(Extreme(x, kElements) / -127.0f);
  const float inverse = Reciprocal(HalfToFloat(block.d));
  for (uint32_t e = 0; e < kElements; ++e) {
    const float value = x[e] * inverse;
    const auto* nearest = std::min_element(
        kIq4NlValues, std::end(kIq4NlValues),
        [value](int8_t a, int8_t b) { return std::fabs(value - a) < std::fabs(value - b); });
    block.q[e] = static_cast<uint8_t>(nearest - kIq4NlValues);
  }
}

// The extreme maps to -16.
void Q5_0::Quantize(const float* x, Block& block) {
  block.d = FloatToHalf(Extreme(x, kElements) / -16.0f);
  const float inverse = Reciprocal(HalfToFloat(block.d));
  for (uint32_t e = 0; e < kElements; ++e) {
    block.q[e] = static_cast<uint8_t>(RoundClamped(x[e] * inverse, -16, 15) + 16);
  }
}

// Each group of 32 has its least number (zero at most) mapped to code 0 and its largest to the
// last; scales and mins are multiples of d and dmin.
template <DType kDTypeOf, bool kHasBits>
void ScaleAndMin<kDTypeOf, kHasBits>::Quantize(const float* x, Block& block) {
  float scales[8], mins[8];
  for (uint32_t r = 0; r < 8; ++r) {
    const auto [low, high] = std::minmax_element(x + 32 * r, x + 32 * (r + 1));
    mins[r] = -std::min(*low, 0.0f);
    scales[r] = (std::max(*high, 0.0f) + mins[r]) / kLevels;
  }
  block.d = FloatToHalf(*std::max_element(scales, scales + 8) / 63.0f);
  block.dmin = FloatToHalf(*std::max_element(mins, mins + 8) / 63.0f);
  const float d = HalfToFloat(block.d), dmin = HalfToFloat(block.dmin);
  for (uint32_t r = 0; r < 8; ++r) {
    const int scale = RoundClamped(scales[r] * Reciprocal(d), 0, 63);
    const int min = RoundClamped(mins[r] * Reciprocal(dmin), 0, 63);
    block.scales[r] = static_cast<uint8_t>(scale);
    block.mins[r] = static_cast<uint8_t>(min);
    const float inverse = Reciprocal(d * static_cast<float>(scale));
    const float offset = dmin * static_cast<float>(min);
    for (uint32_t e = 32 * r; e < 32 * (r + 1); ++e) {
      block.q[e] = static_cast<uint8_t>(RoundClamped((x[e] + offset) * inverse, 0, kLevels));
    }
  }
}
template struct ScaleAndMin<DType::kQ4_K, false>;
template struct ScaleAndMin<DType::kQ5_K, true>;

// Each group of 16 has its extreme mapped to -32; group scales are multiples of d.
void Q6_K::Quantize(const float* x, Block& block) {
  float scales[16];
  for (uint32_t g = 0; g < 16; ++g) scales[g] = Extreme(x + 16 * g, 16) / -32.0f;
  block.d = FloatToHalf(Extreme(scales, 16) / -128.0f);
  const float d = HalfToFloat(block.d);
  for (uint32_t g = 0; g < 16; ++g) {
    const int scale = RoundClamped(scales[g] * Reciprocal(d), -128, 127);
    block.scales[g] = static_cast<uint8_t>(scale);
    const float inverse = Reciprocal(d * static_cast<float>(scale));
    for (uint32_t e = 16 * g; e < 16 * (g + 1); ++e) {
      block.q[e] = static_cast<uint8_t>(RoundClamped(x[e] * inverse, -32, 31) + 32);
    }
  }
}

}  // namespace tandem::codecs
