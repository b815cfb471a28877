// How numbers are rounded into blocks: scales from the largest magnitude, codes to the nearest.
#include <algorithm>
#include <cmath>

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
