// From the sums of a tile's (row, head) pairs to memory, in the FORMAT of the result.
#ifndef TANDEM_TILED_STORE_GLSL
#define TANDEM_TILED_STORE_GLSL
#include "activation.glsl"
#include "half_row.glsl"

// What a lane holds of its row among [column, column + 32): 8 from column + 8 * half on, and 8
// more 16 further on.  Both lanes of the row call it.
void store_columns(uint64_t row, uint column, uint half_of, HalfRow h[2], bool is_there) {
  if (FORMAT == kActivationInt8) {
    uint highest = 0;
    [[unroll]] for (uint b = 0; b < 2; ++b) {
      [[unroll]] for (uint e = 0; e < 8; ++e) {
        highest = max(highest, floatBitsToUint(h[b].e[e]) & 0x7FFFFFFFu);
      }
    }
    highest = max(highest, subgroupShuffleXor(highest, 1));
    if (!is_there) return;
    float inverse = block_inverse(highest);
    uint64_t unit = row + uint64_t(column / kUnitElements) * kUnitBytes;
    uint first = column % kUnitElements;
    [[unroll]] for (uint b = 0; b < 2; ++b) {
      vec4 x = vec4(h[b].e[0], h[b].e[1], h[b].e[2], h[b].e[3]);
      vec4 y = vec4(h[b].e[4], h[b].e[5], h[b].e[6], h[b].e[7]);
      Long(unit + first + b * 16 + half_of * 8).v =
          pack64(uvec2(quantize4(x, inverse), quantize4(y, inverse)));
    }
    if (half_of == 0) Float(unit + kUnitElements + first / 8).v = block_scale(highest);
    return;
  }
  if (!is_there) return;
  [[unroll]] for (uint b = 0; b < 2; ++b) {
    uint at = b * 16 + half_of * 8;
    if (column % HEAD_DIM + at >= HEAD_DIM) continue;
    if (FORMAT == kActivationFragments) {
      store_fragment(row, column + at, vec4(h[b].e[0], h[b].e[1], h[b].e[2], h[b].e[3]));
      store_fragment(row, column + at + 4, vec4(h[b].e[4], h[b].e[5], h[b].e[6], h[b].e[7]));
    } else if (FORMAT == kActivationF16) {
      uvec4 bits = packed(h[b]);
      Wide(row + uint64_t(column + at) * 2).v = u64vec2(pack64(bits.xy), pack64(bits.zw));
    } else {
      uint64_t to = row + uint64_t(column + at) * 4;
      store_vec4(to, vec4(h[b].e[0], h[b].e[1], h[b].e[2], h[b].e[3]));
      store_vec4(to + 16, vec4(h[b].e[4], h[b].e[5], h[b].e[6], h[b].e[7]));
    }
  }
}
#endif
