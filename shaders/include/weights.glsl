// Packed weights (services/common/weights/packed_tensor.h), 32 elements of a row at a time.
// WEIGHT_DTYPE is tandem::DType; what the others need is dead code once it is specialised.
#ifndef TANDEM_WEIGHTS_GLSL
#define TANDEM_WEIGHTS_GLSL
#include "memory.glsl"

layout(constant_id = 3) const uint WEIGHT_DTYPE = 0;
const uint kF32 = 0, kF16 = 1, kBf16 = 2, kQ8_0 = 3, kQ4_0 = 4, kQ6_K = 5, kQ4_K = 6, kQ5_K = 7,
           kQ5_0 = 8, kIq4Nl = 9;

// Addresses of the first piece of a row in each plane.
struct WeightRow {
  uint64_t plane[4];
};

// The first piece of a row in a plane of pieces of `bytes` bytes, `count` of them a row.
uint64_t first_piece(uint64_t plane, uint row, uint count, uint bytes) {
  return plane + (uint64_t((row >> 5) * count) * 32 + (row & 31)) * bytes;
}
// Piece i of a row, of those of 16 bytes, and byte `offset` of it.
uint64_t piece(uint64_t first, uint i) { return first + i * (32 * 16); }
uint64_t piece(uint64_t first, uint i, uint offset) { return first + (i * (32 * 16) + offset); }

WeightRow weight_row(uint64_t plane[4], uint row, uint cols) {
  WeightRow w;
  if (WEIGHT_DTYPE == kF32) {
    w.plane[0] = first_piece(plane[0], row, cols / 4, 16);
  } else if (WEIGHT_DTYPE == kF16 || WEIGHT_DTYPE == kBf16) {
    w.plane[0] = first_piece(plane[0], row, cols / 8, 16);
  } else if (WEIGHT_DTYPE == kQ8_0) {
    w.plane[0] = first_piece(plane[0], row, cols / 16, 16);
    w.plane[1] = first_piece(plane[1], row, (cols + 255) / 256, 16);
  } else {
    uint groups = (cols + 255) / 256;
    w.plane[0] = first_piece(plane[0], row, cols / 32, 16);
    if (WEIGHT_DTYPE == kQ4_0 || WEIGHT_DTYPE == kIq4Nl) {
      w.plane[1] = first_piece(plane[1], row, groups, 16);
    } else if (WEIGHT_DTYPE == kQ5_0) {
      w.plane[1] = first_piece(plane[1], row, (cols + 127) / 128, 16);
      w.plane[2] = first_piece(plane[2], row, groups, 16);
    } else if (WEIGHT_DTYPE == kQ4_K) {
      w.plane[1] = first_piece(plane[1], row, groups, 16);
      w.plane[2] = first_piece(plane[2], row, groups, 4);
    } else if (WEIGHT_DTYPE == kQ5_K) {
      w.plane[1] = first_piece(plane[1], row, cols / 128, 16);
      w.plane[2] = first_piece(plane[2], row, groups, 16);
      w.plane[3] = first_piece(plane[3], row, groups, 4);
    } else {
      w.plane[1] = first_piece(plane[1], row, cols / 64, 16);
      w.plane[2] = first_piece(plane[2], row, groups, 16);
      w.plane[3] = first_piece(plane[3], row, groups, 2);
    }
  }
  return w;
}

// 32 elements as they lie in memory, and their scales (of the first and second 16 elements; q4_k
// and q5_k: the scale, and what is subtracted).
struct WeightBlock {
  uvec4 raw[8];
  vec2 scale;
};

float load_scale(uint64_t address) { return float(Half(address).v); }

// d s and dmin m of a block of q4_k or q5_k.
vec2 scale_and_min(uint64_t scales, uint64_t supers, uint block) {
  uint64_t bytes = piece(scales, block / 8, block % 8 / 4 * 4);  // four of s, eight on four of m
  uint shift = block % 4 * 8;
  uvec2 factors = uvec2(load_uint(bytes) >> shift, load_uint(bytes + 8) >> shift) & 255;
  return unpackHalf2x16(load_uint(supers + block / 8 * (32 * 4))) * vec2(factors);
}

WeightBlock load_block(WeightRow w, uint block) {
  WeightBlock b;
  b.scale = vec2(1.0);
  if (WEIGHT_DTYPE == kF32) {
    [[unroll]] for (uint j = 0; j < 8; ++j) b.raw[j] = load_uvec4(piece(w.plane[0], block * 8 + j));
  } else if (WEIGHT_DTYPE == kF16 || WEIGHT_DTYPE == kBf16) {
    [[unroll]] for (uint j = 0; j < 4; ++j) b.raw[j] = load_uvec4(piece(w.plane[0], block * 4 + j));
  } else if (WEIGHT_DTYPE == kQ8_0) {
    b.raw[0] = load_uvec4(piece(w.plane[0], block * 2));
    b.raw[1] = load_uvec4(piece(w.plane[0], block * 2 + 1));
    b.scale = vec2(load_scale(piece(w.plane[1], block / 8, block % 8 * 2)));
  } else {
    b.raw[0] = load_uvec4(piece(w.plane[0], block));
    if (WEIGHT_DTYPE == kQ4_0 || WEIGHT_DTYPE == kIq4Nl) {
      b.scale = vec2(load_scale(piece(w.plane[1], block / 8, block % 8 * 2)));
    } else if (WEIGHT_DTYPE == kQ5_0) {
      b.raw[1].x = load_uint(piece(w.plane[1], block / 4, block % 4 * 4));
      b.scale = vec2(load_scale(piece(w.plane[2], block / 8, block % 8 * 2)));
    } else if (WEIGHT_DTYPE == kQ4_K) {
      b.scale = scale_and_min(w.plane[1], w.plane[2], block);
    } else if (WEIGHT_DTYPE == kQ5_K) {
      b.raw[1].x = load_uint(piece(w.plane[1], block / 4, block % 4 * 4));
      b.scale = scale_and_min(w.plane[2], w.plane[3], block);
    } else {
      b.raw[1].xy = unpack32(Long(piece(w.plane[1], block / 2, block % 2 * 8)).v);
      int s = int(Short(piece(w.plane[2], block / 8, block % 8 * 2)).v);
      b.scale = load_scale(w.plane[3] + block / 8 * (32 * 2)) *
                vec2(bitfieldExtract(s, 0, 8), bitfieldExtract(s, 8, 8));
    }
  }
  return b;
}

// The four bytes of a word, as numbers.
vec4 signed_bytes(int word) {
  return vec4(bitfieldExtract(word, 0, 8), bitfieldExtract(word, 8, 8),
              bitfieldExtract(word, 16, 8), word >> 24);
}

// iq4_nl's number of a code.  Chosen, not looked up: an array costs a software device memory.
float nonlinear(uint code) {
  uint low = code < 4 ? 0xBFAD9881u : 0xF6EADDCFu;  // four signed bytes each
  uint high = code < 12 ? 0x26190D01u : 0x71594535u;
  return float(bitfieldExtract(int(code < 8 ? low : high), int(code % 4 * 8), 8));
}

// Elements [4j, 4j + 4) of a block, j < 8.
vec4 block_vec4(WeightBlock b, uint j) {
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
  if (WEIGHT_DTYPE == kQ8_0) return signed_bytes(int(b.raw[j / 4][j % 4])) * b.scale.x;
  uint nibbles = b.raw[0][j % 4];
  if (WEIGHT_DTYPE == kQ4_0) {
    int q = int(nibbles), half_byte = int(j & 4);
    return vec4(bitfieldExtract(q, half_byte, 4), bitfieldExtract(q, half_byte + 8, 4),
                bitfieldExtract(q, half_byte + 16, 4), bitfieldExtract(q, half_byte + 24, 4)) *
           b.scale.x;
  }
  uint q = (nibbles >> (j & 4)) & 0x0F0F0F0F;
  if (WEIGHT_DTYPE == kIq4Nl) {
    return vec4(nonlinear(q & 15), nonlinear((q >> 8) & 15), nonlinear((q >> 16) & 15),
                nonlinear(q >> 24)) * b.scale.x;
  }
  if (WEIGHT_DTYPE == kQ5_0 || WEIGHT_DTYPE == kQ5_K) q |= ((b.raw[1].x >> j) & 0x01010101) << 4;
  if (WEIGHT_DTYPE == kQ6_K) q |= ((b.raw[1][j / 4] >> (2 * (j % 4))) & 0x03030303) << 4;
  ivec4 codes = ivec4(q & 255, (q >> 8) & 255, (q >> 16) & 255, q >> 24);
  if (WEIGHT_DTYPE == kQ4_K || WEIGHT_DTYPE == kQ5_K) return vec4(codes) * b.scale.x - b.scale.y;
  if (WEIGHT_DTYPE == kQ5_0) return vec4(codes - 16) * b.scale.x;
  return vec4(codes - 32) * (j < 4 ? b.scale.x : b.scale.y);
}
#endif
