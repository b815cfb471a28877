// Blocks of 32 packed weights of a row (services/common/weights/packed_tensor.h) and their numbers.
// WEIGHT_DTYPE is tandem::DType; what the others need is dead code once it is specialised.
#ifndef TANDEM_WEIGHT_BLOCK_GLSL
#define TANDEM_WEIGHT_BLOCK_GLSL
#include "dtype.glsl"

layout(constant_id = 3) const uint WEIGHT_DTYPE = 0;

// 32 elements as they lie in memory, and their scales (of the first and second 16 elements; q4_k
// and q5_k: the scale, and the minimum to subtract).
struct WeightBlock {
  uvec4 raw[8];
  vec2 scale;
};

// The four bytes of a word, as numbers.
vec4 int8_values(int word) {
  return vec4(bitfieldExtract(word, 0, 8), bitfieldExtract(word, 8, 8),
              bitfieldExtract(word, 16, 8), word >> 24);
}

// Four values of iq4_nl from code `i` on as int8 in a word, a constant.
#define IQ4_NL_WORD(i)                                                          \
  (uint(kIq4NlValues[i]) & 255u | (uint(kIq4NlValues[i + 1]) & 255u) << 8 |     \
   (uint(kIq4NlValues[i + 2]) & 255u) << 16 | (uint(kIq4NlValues[i + 3]) & 255u) << 24)

// iq4_nl's value of a code.  Chosen, not looked up: an array costs a software device memory.
float nonlinear(uint code) {
  uint low = code < 4 ? IQ4_NL_WORD(0) : IQ4_NL_WORD(4);
  uint high = code < 12 ? IQ4_NL_WORD(8) : IQ4_NL_WORD(12);
  return float(bitfieldExtract(int(code < 8 ? low : high), int(code % 4 * 8), 8));
}

// Whether a block's numbers are its codes times one scale.
const bool kOneScale = WEIGHT_DTYPE == kQ8_0 || WEIGHT_DTYPE == kQ4_0 || WEIGHT_DTYPE == kQ5_0 ||
                       WEIGHT_DTYPE == kIq4Nl;

// Elements [4j, 4j + 4) of a block before scales and minimum, j < 8; of f32, f16 and bf16 themselves.
vec4 block_codes(WeightBlock b, uint j) {
  if (WEIGHT_DTYPE == kF32) return uintBitsToFloat(b.raw[j]);
  if (WEIGHT_DTYPE == kF16) {
    uvec4 r = b.raw[j / 2];
    uvec2 h = (j & 1) == 0 ? r.xy : r.zw;
    return vec4(unpackHalf2x16(h.x), unpackHalf2x16(h.y));
  }
  if (WEIGHT_DTYPE == kBf16) {
    uvec4 r = b.raw[j / 2];
    uvec2 h = (j & 1) == 0 ? r.xy : r.zw;
    return uintBitsToFloat(uvec4(h.x << 16, h.x & 0xFFFF0000u, h.y << 16, h.y & 0xFFFF0000u));
  }
  if (WEIGHT_DTYPE == kQ8_0) return int8_values(int(b.raw[j / 4][j % 4]));
  uint nibbles = b.raw[0][j % 4];
  if (WEIGHT_DTYPE == kQ4_0) {
    int q = int(nibbles), half_byte = int(j & 4);
    return vec4(bitfieldExtract(q, half_byte, 4), bitfieldExtract(q, half_byte + 8, 4),
                bitfieldExtract(q, half_byte + 16, 4), bitfieldExtract(q, half_byte + 24, 4));
  }
  uint q = (nibbles >> (j & 4)) & 0x0F0F0F0F;
  if (WEIGHT_DTYPE == kIq4Nl) {
    return vec4(nonlinear(q & 15), nonlinear((q >> 8) & 15), nonlinear((q >> 16) & 15),
                nonlinear(q >> 24));
  }
  if (WEIGHT_DTYPE == kQ5_0 || WEIGHT_DTYPE == kQ5_K) q |= ((b.raw[1].x >> j) & 0x01010101) << 4;
  if (WEIGHT_DTYPE == kQ6_K) q |= ((b.raw[1][j / 4] >> (2 * (j % 4))) & 0x03030303) << 4;
  ivec4 codes = ivec4(q & 255, (q >> 8) & 255, (q >> 16) & 255, q >> 24);
  return vec4(codes - (WEIGHT_DTYPE == kQ5_0 ? 16 : WEIGHT_DTYPE == kQ6_K ? 32 : 0));
}

// Elements [4j, 4j + 4) of a block, j < 8.
vec4 block_vec4(WeightBlock b, uint j) {
  vec4 codes = block_codes(b, j);
  if (kOneScale) return codes * b.scale.x;
  if (WEIGHT_DTYPE == kQ4_K || WEIGHT_DTYPE == kQ5_K) return codes * b.scale.x - b.scale.y;
  if (WEIGHT_DTYPE == kQ6_K) return codes * (j < 4 ? b.scale.x : b.scale.y);
  return codes;
}
#endif
