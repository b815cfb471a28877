// Packed weights (services/common/weights/packed_tensor.h), 32 elements of a row at a time.
// WEIGHT_DTYPE is tandem::DType; what the others need is dead code once it is specialised.
#ifndef TANDEM_WEIGHTS_GLSL
#define TANDEM_WEIGHTS_GLSL
#include "memory.glsl"

layout(constant_id = 3) const uint WEIGHT_DTYPE = 0;
const uint kF32 = 0, kF16 = 1, kBf16 = 2, kQ8_0 = 3, kQ4_0 = 4, kQ6_K = 5;

// Addresses of a row's planes.
struct WeightRow {
  uint64_t plane[4];
};

WeightRow weight_row(uint64_t plane[4], uint row, uint cols) {
  uint64_t r = uint64_t(row);
  WeightRow w;
  w.plane[0] = plane[0];
  w.plane[1] = plane[1];
  w.plane[2] = plane[2];
  w.plane[3] = plane[3];
  if (WEIGHT_DTYPE == kF32) {
    w.plane[0] += r * (cols * 4);
  } else if (WEIGHT_DTYPE == kF16 || WEIGHT_DTYPE == kBf16) {
    w.plane[0] += r * (cols * 2);
  } else if (WEIGHT_DTYPE == kQ8_0) {
    w.plane[0] += r * cols;
    w.plane[1] += r * (cols / 16);
  } else if (WEIGHT_DTYPE == kQ4_0) {
    w.plane[0] += r * (cols / 2);
    w.plane[1] += r * (cols / 16);
  } else {
    w.plane[0] += r * (cols / 2);
    w.plane[1] += r * (cols / 4);
    w.plane[2] += r * (cols / 16);
    w.plane[3] += r * (cols / 128);
  }
  return w;
}

// 32 elements as they lie in memory, and their scales (first and second 16 elements).
struct WeightBlock {
  uvec4 raw[8];
  vec2 scale;
};

float load_scale(uint64_t address) { return float(Half(address).v); }

WeightBlock load_block(WeightRow w, uint block) {
  WeightBlock b;
  b.scale = vec2(1.0);
  uint64_t i = uint64_t(block);
  if (WEIGHT_DTYPE == kF32) {
    [[unroll]] for (uint j = 0; j < 8; ++j) b.raw[j] = load_uvec4(w.plane[0] + i * 128 + j * 16);
  } else if (WEIGHT_DTYPE == kF16 || WEIGHT_DTYPE == kBf16) {
    [[unroll]] for (uint j = 0; j < 4; ++j) b.raw[j] = load_uvec4(w.plane[0] + i * 64 + j * 16);
  } else if (WEIGHT_DTYPE == kQ8_0) {
    b.raw[0] = load_uvec4(w.plane[0] + i * 32);
    b.raw[1] = load_uvec4(w.plane[0] + i * 32 + 16);
    b.scale = vec2(load_scale(w.plane[1] + i * 2));
  } else if (WEIGHT_DTYPE == kQ4_0) {
    b.raw[0] = load_uvec4(w.plane[0] + i * 16);
    b.scale = vec2(load_scale(w.plane[1] + i * 2));
  } else {
    b.raw[0] = load_uvec4(w.plane[0] + i * 16);
    b.raw[1].xy = unpack32(Long(w.plane[1] + i * 8).v);
    int s = int(Short(w.plane[2] + i * 2).v);
    b.scale = load_scale(w.plane[3] + (i / 8) * 2) *
              vec2(bitfieldExtract(s, 0, 8), bitfieldExtract(s, 8, 8));
  }
  return b;
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
  if (WEIGHT_DTYPE == kQ8_0) {
    int q = int(b.raw[j / 4][j % 4]);
    return vec4(bitfieldExtract(q, 0, 8), bitfieldExtract(q, 8, 8), bitfieldExtract(q, 16, 8),
                q >> 24) * b.scale.x;
  }
  uint low = b.raw[0][j / 2] >> (16 * (j & 1));
  ivec4 q = ivec4(low & 15, (low >> 4) & 15, (low >> 8) & 15, (low >> 12) & 15);
  if (WEIGHT_DTYPE == kQ4_0) return vec4(q - 8) * b.scale.x;
  uint high = b.raw[1][j / 4] >> (8 * (j & 3));
  q |= ivec4((high & 3) << 4, (high & 12) << 2, high & 48, (high & 192) >> 2);
  return vec4(q - 32) * (j < 4 ? b.scale.x : b.scale.y);
}
#endif
