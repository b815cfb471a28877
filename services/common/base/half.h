// IEEE binary16 and bfloat16 <-> float32, round to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem {

uint16_t FloatToHalf(float value);
float HalfToFloat(uint16_t bits);

inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
uint16_t FloatToBf16(float value);

}  // namespace tandem
