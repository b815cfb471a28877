// Stages a unit of 256 columns of a team's activations in shared memory, as blocks of int8: 16 uvec4
// of elements, two of scales, in `staged` from `to` + row * kStaged on.  The including shader defines
// x, k_dim, X_FORMAT, ROWS, kStaged, staged, and how to read x.
#ifndef TANDEM_STAGED_BLOCKS_GLSL
#define TANDEM_STAGED_BLOCKS_GLSL
#include "activation.glsl"
#include "unit_weights.glsl"

const uint kBlockLoads = (ROWS * 18 + 31) / 32;  // of a lane

uvec4 load_input(uint64_t address);

uint64_t x_row(uint row) { return activation_row(x, X_FORMAT, k_dim, row); }

// Blocks that lie in memory; scales take in kByteScale and are zero beyond k_dim.
void stage_blocks(uint to, uint m0, uint rows, uint u, uint lane) {
  uvec4 loaded[kBlockLoads];
  [[unroll]] for (uint i = 0; i < kBlockLoads; ++i) {
    uint at = i * 32 + lane;
    loaded[i] = load_input(x_row(m0 + min(at / 18, rows - 1)) + u * kUnitBytes + at % 18 * 16);
  }
  [[unroll]] for (uint i = 0; i < kBlockLoads; ++i) {
    uint at = i * 32 + lane, row = at / 18, piece = at % 18;
    if (row >= ROWS) break;
    if (piece >= 16) {
      vec4 scale = uintBitsToFloat(loaded[i]) * kByteScale;
      if (!WHOLE_UNITS) {
        uvec4 block = u * 8 + (piece - 16) * 4 + uvec4(0, 1, 2, 3);
        scale = mix(vec4(0.0), scale, lessThan(block, uvec4(k_dim / 32)));
      }
      loaded[i] = floatBitsToUint(scale);
    }
    staged[to + row * kStaged + piece] = loaded[i];
  }
}

// Floats made blocks, 8 elements a thread, the same blocks as store_activation makes.
void stage_quantized(uint to, uint m0, uint rows, uint u, uint lane) {
  uint k = u * 256 + lane * 8;
  vec4 a[ROWS], b[ROWS];
  [[unroll]] for (uint m = 0; m < ROWS; ++m) {
    uint64_t row = x_row(m0 + min(m, rows - 1));
    a[m] = b[m] = vec4(0.0);
    if (k >= k_dim) continue;
    if (X_FORMAT == kActivationF16) {
      uvec4 bits = load_input(row + k * 2);
      a[m] = vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
      b[m] = vec4(unpackHalf2x16(bits.z), unpackHalf2x16(bits.w));
    } else if (X_FORMAT == kActivationBf16) {
      uvec4 bits = load_input(row + k * 2);
      a[m] = vec4(unpack_bf16(bits.x), unpack_bf16(bits.y));
      b[m] = vec4(unpack_bf16(bits.z), unpack_bf16(bits.w));
    } else {
      a[m] = uintBitsToFloat(load_input(row + k * 4));
      b[m] = uintBitsToFloat(load_input(row + k * 4 + 16));
    }
  }
  [[unroll]] for (uint m = 0; m < ROWS; ++m) {
    uint highest = max(magnitude_bits(a[m]), magnitude_bits(b[m]));
    highest = max(highest, subgroupShuffleXor(highest, 1));
    highest = max(highest, subgroupShuffleXor(highest, 2));
    float inverse = block_inverse(highest);
    uint at = to + m * kStaged, word = (lane & 1) * 2;
    staged[at + lane / 2][word] = quantize4(a[m], inverse);
    staged[at + lane / 2][word + 1] = quantize4(b[m], inverse);
    if ((lane & 3) == 0) {
      float scale = block_scale(highest) * kByteScale;
      staged[at + 16 + lane / 16][lane / 4 % 4] = floatBitsToUint(scale);
    }
  }
}
#endif
