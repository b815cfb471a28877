// Packed weights of a thread's row, a unit of 256 columns at a time (64 of 16-bit formats), as the
// tiles of services/common/weights/packed_tensor.h hold them: every load is 16 bytes a thread, 512
// neighbouring ones for 32 rows.  Blocks of 32 become int8 for integer dot products.
#ifndef TANDEM_UNIT_WEIGHTS_GLSL
#define TANDEM_UNIT_WEIGHTS_GLSL
#include "dtype.glsl"
#include "memory.glsl"
#extension GL_EXT_spirv_intrinsics : require

layout(constant_id = 3) const uint WEIGHT_DTYPE = 0;
layout(constant_id = 4) const bool WHOLE_UNITS = true;  // the columns are a multiple of 256
const bool kIsFloat = WEIGHT_DTYPE == kF16 || WEIGHT_DTYPE == kBf16;
const bool kHasMinimum = WEIGHT_DTYPE == kQ4_K || WEIGHT_DTYPE == kQ5_K;
const bool kIsFive = WEIGHT_DTYPE == kQ5_K || WEIGHT_DTYPE == kQ5_0;
// The blocks' bytes are the weights times 1 / kByteScale.
const float kByteScale = WEIGHT_DTYPE == kQ4_0   ? 1.0 / 16
                         : WEIGHT_DTYPE == kQ5_0 ? 1.0 / 8
                         : WEIGHT_DTYPE == kQ6_K ? 1.0 / 4
                                                 : 1.0;
const uint kPieces = WEIGHT_DTYPE == kQ8_0 ? 16 : 8;  // of plane 0 in a unit

// OpSDot: the dot product of four int8.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019],
                  id = 4450) int dot_bytes(int a, int b, spirv_literal int format);

int dot16(uvec4 a, uvec4 b) {
  return dot_bytes(int(a.x), int(b.x), 0) + dot_bytes(int(a.y), int(b.y), 0) +
         dot_bytes(int(a.z), int(b.z), 0) + dot_bytes(int(a.w), int(b.w), 0);
}

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly restrict buffer Piece {
  uvec4 v;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly restrict buffer SuperPiece {
  uint v;
};
layout(buffer_reference, scalar, buffer_reference_align = 2) readonly restrict buffer HalfPiece {
  float16_t v;
};

// Pairs of values for the two nibbles of a byte.
shared uint nonlinear[WEIGHT_DTYPE == kIq4Nl ? 256 : 1];

// Once before the first block; ends in a barrier where there is something to do.
void prepare_weights(uint thread, uint threads) {
  if (WEIGHT_DTYPE != kIq4Nl) return;
  for (uint i = thread; i < 256; i += threads) {
    nonlinear[i] = (uint(kIq4NlValues[i & 15]) & 255) | (uint(kIq4NlValues[i >> 4]) & 255) << 8;
  }
  barrier();
}

struct Unit {
  uvec4 q[16];     // kPieces of them
  uvec4 high[4];  // 2 of q5, 4 of q6_k
  uvec4 scales;
  uint super;
};

uvec4 load_piece(uint64_t plane, uint piece, uint lane) {
  return Piece(plane + uint64_t(piece) * 512 + lane * 16).v;
}

// Part `part` of `parts` of the quants of unit `u` of row `lane` of a tile; `cols` columns in all.
// What lies beyond the columns is finite, no more.
void load_quants(inout Unit w, uint64_t plane[4], uint tile, uint u, uint cols, uint lane,
                 uint part, uint parts) {
  uint elements = kIsFloat ? 8 : WEIGHT_DTYPE == kQ8_0 ? 16 : 32;
  uint pieces = cols / elements;
  uint64_t quants = plane[0] + uint64_t(tile * pieces) * 512 + lane * 16;
  [[unroll]] for (uint j = 0; j < kPieces / parts; ++j) {
    uint i = part * (kPieces / parts) + j;
    uint piece = u * kPieces + i;
    if (!WHOLE_UNITS) piece = min(piece, pieces - 1);
    w.q[i] = Piece(quants + uint64_t(piece) * 512).v;
  }
}

// What else there is of the unit.
void load_scales(inout Unit w, uint64_t plane[4], uint tile, uint u, uint cols, uint lane) {
  uint units = (cols + 255) / 256;
  uint scales = WEIGHT_DTYPE == kQ5_0 || WEIGHT_DTYPE == kQ5_K || WEIGHT_DTYPE == kQ6_K ? 2 : 1;
  if (!kIsFloat) w.scales = load_piece(plane[scales], tile * units + u, lane);
  if (kIsFive) {
    uint highs = (cols + 127) / 128;
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      w.high[i] = load_piece(plane[1], tile * highs + min(u * 2 + i, highs - 1), lane);
    }
  }
  if (WEIGHT_DTYPE == kQ6_K) {
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      w.high[i] = load_piece(plane[1], tile * (cols / 64) + u * 4 + i, lane);
    }
    uint64_t at = plane[3] + uint64_t((tile * units + u) * 32 + lane) * 2;
    w.super = floatBitsToUint(float(HalfPiece(at).v));
  }
  if (kHasMinimum) {
    uint64_t super = plane[WEIGHT_DTYPE == kQ5_K ? 3 : 2];
    w.super = SuperPiece(super + uint64_t((tile * units + u) * 32 + lane) * 4).v;
  }
}

// 32 weights: first and second 16 as int8.  Weight = scale * byte * kByteScale - minimum;
// q6_k has a further factor for each 16.
struct Block {
  uvec4 low, high;
  float scale;
  float minimum;
  ivec2 factor;
};

void look_up(uint word, out uint low, out uint high) {
  uint a = nonlinear[word & 255], b = nonlinear[(word >> 8) & 255];
  uint c = nonlinear[(word >> 16) & 255], d = nonlinear[word >> 24];
  uint ab = a | b << 16, cd = c | d << 16;
  low = (ab & 255) | (ab >> 8 & 0xFF00u) | (cd & 255) << 16 | (cd << 8 & 0xFF000000u);
  high = (ab >> 8 & 255) | (ab >> 16 & 0xFF00u) | (cd << 8 & 0xFF0000u) | (cd & 0xFF000000u);
}

Block unpack_block(Unit w, uint b) {
  Block block;
  vec2 pair = unpackHalf2x16(w.scales[b / 2]);
  block.scale = (b & 1) == 0 ? pair.x : pair.y;
  block.minimum = 0.0;
  block.factor = ivec2(1);
  if (WEIGHT_DTYPE == kQ8_0) {
    block.low = w.q[2 * b];
    block.high = w.q[2 * b + 1];
    return block;
  }
  uvec4 q = w.q[b];
  if (WEIGHT_DTYPE == kQ4_0) {
    block.low = (q << 4) & 0xF0F0F0F0u;
    block.high = q & 0xF0F0F0F0u;
    return block;
  }
  if (WEIGHT_DTYPE == kIq4Nl) {
    [[unroll]] for (uint s = 0; s < 4; ++s) look_up(q[s], block.low[s], block.high[s]);
    return block;
  }
  block.low = q & 0x0F0F0F0Fu;
  block.high = (q >> 4) & 0x0F0F0F0Fu;
  if (kIsFive) {
    uint bits = w.high[b / 4][b % 4];
    [[unroll]] for (uint s = 0; s < 4; ++s) {
      block.low[s] |= ((bits >> s) & 0x01010101u) << 4;
      block.high[s] |= ((bits >> (4 + s)) & 0x01010101u) << 4;
    }
  }
  if (WEIGHT_DTYPE == kQ5_0) {  // 8 (q - 16)
    block.low = (block.low << 3) ^ 0x80808080u;
    block.high = (block.high << 3) ^ 0x80808080u;
  }
  if (kHasMinimum) {
    vec2 super = unpackHalf2x16(w.super);
    uint shift = 8 * (b & 3);
    block.scale = super.x * float((w.scales[b / 4] >> shift) & 255);
    block.minimum = super.y * float((w.scales[2 + b / 4] >> shift) & 255);
  }
  if (WEIGHT_DTYPE == kQ6_K) {  // 4 (q - 32)
    uint x = w.high[b / 2][(b & 1) * 2], y = w.high[b / 2][(b & 1) * 2 + 1];
    [[unroll]] for (uint s = 0; s < 4; ++s) {
      block.low[s] = (block.low[s] | ((x >> 2 * s) & 0x03030303u) << 4) << 2 ^ 0x80808080u;
      block.high[s] = (block.high[s] | ((y >> 2 * s) & 0x03030303u) << 4) << 2 ^ 0x80808080u;
    }
    block.scale = uintBitsToFloat(w.super);
    int factors = int(w.scales[b / 2]) >> 16 * (b & 1);
    block.factor = ivec2(bitfieldExtract(factors, 0, 8), bitfieldExtract(factors, 8, 8));
  }
  return block;
}

int block_dot(Block block, uvec4 low, uvec4 high) {
  int a = dot16(block.low, low), b = dot16(block.high, high);
  return WEIGHT_DTYPE == kQ6_K ? a * block.factor.x + b * block.factor.y : a + b;
}

// Elements [4 i, 4 i + 4) of a unit of 64 16-bit numbers.
vec4 float_weights(Unit w, uint i) {
  uvec2 bits = (i & 1) == 0 ? w.q[i / 2].xy : w.q[i / 2].zw;
  if (WEIGHT_DTYPE == kF16) return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
  return uintBitsToFloat(
      uvec4(bits.x << 16, bits.x & 0xFFFF0000u, bits.y << 16, bits.y & 0xFFFF0000u));
}
#endif
