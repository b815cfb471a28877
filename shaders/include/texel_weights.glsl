// Packed weights (services/common/weights/packed_tensor.h) through texel buffers, 32 elements of a
// row at a time.  A software device loads by address lane by lane, at 20 cycles and more each; its
// texel loads are vector code, 16 bytes a lane.
#ifndef TANDEM_TEXEL_WEIGHTS_GLSL
#define TANDEM_TEXEL_WEIGHTS_GLSL
#include "weight_block.glsl"

// A shard's planes, 16 bytes a texel whatever their pieces are.  Those that the format lacks are
// bound and not read.
layout(binding = 1, rgba32ui) uniform readonly restrict uimageBuffer plane0;
layout(binding = 2, rgba32ui) uniform readonly restrict uimageBuffer plane1;
layout(binding = 3, rgba32ui) uniform readonly restrict uimageBuffer plane2;
layout(binding = 4, rgba32ui) uniform readonly restrict uimageBuffer plane3;

const bool kHasMinimum = WEIGHT_DTYPE == kQ4_K || WEIGHT_DTYPE == kQ5_K;
const bool kHasFifthBit = WEIGHT_DTYPE == kQ5_0 || WEIGHT_DTYPE == kQ5_K;
const bool kIsBlocks = WEIGHT_DTYPE >= kQ8_0;  // else plain numbers

// Where a row's pieces begin, in texels; what lasts longer than a block.
struct TexelRow {
  uint quants;
  uint bits;    // of q5, pairs of q6_k
  uint scales;  // pieces of 256 elements
  uint super;   // 256 elements, in numbers of 4 bytes (q6_k: 2)
  uvec4 scale;  // from the current block's on
  vec2 factors;
};

uint first_texel(uint row, uint pieces) { return row / kTileRows * pieces * kTileRows + row % kTileRows; }

TexelRow texel_row(uint row, uint cols) {
  uint elements = WEIGHT_DTYPE == kF32                              ? 4
                  : WEIGHT_DTYPE == kF16 || WEIGHT_DTYPE == kBf16 ? 8
                  : WEIGHT_DTYPE == kQ8_0                           ? 16
                                                                    : 32;
  uint groups = (cols + 255) / 256;
  TexelRow w;
  w.quants = first_texel(row, cols / elements);
  w.bits = first_texel(row, WEIGHT_DTYPE == kQ6_K ? cols / 64 : (cols + 127) / 128);
  w.scales = w.super = first_texel(row, groups);
  w.scale = uvec4(0);
  w.factors = vec2(1.0);
  return w;
}

uvec4 load_bits(TexelRow w, uint piece) { return imageLoad(plane1, int(w.bits + piece * kTileRows)); }

// What 256 elements share: at every eighth block.
void load_group(inout TexelRow w, uint group) {
  int scales = int(w.scales + group * kTileRows);
  w.scale = WEIGHT_DTYPE == kQ6_K || kHasFifthBit ? imageLoad(plane2, scales)
                                                  : imageLoad(plane1, scales);
  uint super = w.super + group * kTileRows;
  if (kHasMinimum) {
    uvec4 four = WEIGHT_DTYPE == kQ5_K ? imageLoad(plane3, int(super / 4))
                                       : imageLoad(plane2, int(super / 4));
    w.factors = unpackHalf2x16(four[super & 3]);
  } else if (WEIGHT_DTYPE == kQ6_K) {
    uint two = imageLoad(plane3, int(super / 8))[super / 2 & 3];
    w.factors = unpackHalf2x16((super & 1) == 0 ? two : two >> 16).xx;
  }
}

// Blocks in order, from the first on, after load_group at every eighth.
WeightBlock load_block(inout TexelRow w, uint block) {
  WeightBlock b;
  b.scale = vec2(1.0);
  const uint kPieces = WEIGHT_DTYPE == kF32                              ? 8
                       : WEIGHT_DTYPE == kF16 || WEIGHT_DTYPE == kBf16 ? 4
                       : WEIGHT_DTYPE == kQ8_0                           ? 2
                                                                         : 1;
  [[unroll]] for (uint i = 0; i < kPieces; ++i) {
    b.raw[i] = imageLoad(plane0, int(w.quants + (block * kPieces + i) * kTileRows));
  }
  if (kHasFifthBit) b.raw[1].x = load_bits(w, block / 4)[block & 3];
  if (WEIGHT_DTYPE == kQ6_K) {
    uvec4 pairs = load_bits(w, block / 2);
    b.raw[1].xy = (block & 1) == 0 ? pairs.xy : pairs.zw;
  }
  if (!kIsBlocks) return b;
  if (kHasMinimum) {  // a byte of s and of m
    b.scale = w.factors * vec2(w.scale.x & 255, w.scale.z & 255);
    bool last = (block & 3) == 3;
    w.scale.x = last ? w.scale.y : w.scale.x >> 8;
    w.scale.z = last ? w.scale.w : w.scale.z >> 8;
    return b;
  }
  uint bits = w.scale.x & 0xFFFF;
  b.scale = WEIGHT_DTYPE == kQ6_K ? w.factors * vec2(int(bits << 24) >> 24, int(bits << 16) >> 24)
                                  : unpackHalf2x16(bits).xx;
  w.scale = (block & 1) == 0 ? uvec4(w.scale.x >> 16, w.scale.yzw) : w.scale.yzww;
  return b;
}
#endif
