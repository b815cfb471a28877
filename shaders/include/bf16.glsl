// bfloat16, the upper half of a float32, in pairs: the first in the low half of a word.
#ifndef TANDEM_BF16_GLSL
#define TANDEM_BF16_GLSL
#include "pack_halves.glsl"

vec2 unpack_bf16(uint pair) { return uintBitsToFloat(uvec2(pair << 16, pair & 0xFFFF0000u)); }

// Rounded to nearest even.  A NaN stays one: the carry of the rounding could make it a zero.
uint pack_bf16(vec2 x) {
  uvec2 bits = floatBitsToUint(x);
  uvec2 rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  rounded = mix(rounded, bits | 0x400000u, greaterThan(bits & 0x7FFFFFFFu, uvec2(0x7F800000u)));
  return rounded.x >> 16 | (rounded.y & 0xFFFF0000u);
}

// The same numbers as float16: exact in its normal range, rounded to nearest below it, infinite above.
uint bf16_as_halves(uint pair) { return pack_halves(unpack_bf16(pair)); }
#endif
