// Packed weights (services/common/weights/packed_tensor.h) by address, 32 elements of a row at a time.
#ifndef TANDEM_WEIGHTS_GLSL
#define TANDEM_WEIGHTS_GLSL
#include "memory.glsl"
#include "weight_block.glsl"

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
#endif
