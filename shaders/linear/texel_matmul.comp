// matmul.comp for software devices: the same products, weights and x read through texel buffers.
// X_FORMAT: rgba32f or rgba16f; or rgba16ui with X_BF16, as no texel format is bfloat16.
//
// A lane owns COLUMNS rows of w and ROWS rows of x as there.  Every output is one chain of fused
// multiply-adds for each block of 32 columns, in ascending order, and one over the blocks, whatever
// ROWS and COLUMNS are: so a row's results do not depend on the rows beside it.  One column of
// outputs after another: ROWS sums are all that has to stay in registers.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "geglu.glsl"
#include "memory.glsl"
#include "texel_weights.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint ROWS = 1;
layout(constant_id = 5) const uint COLUMNS = 4;
layout(constant_id = 6) const bool GEGLU = false;
// [rows, k_dim / 4]
#ifdef X_BF16
layout(binding = 0, X_FORMAT) uniform readonly restrict uimageBuffer x;
vec4 load_x(uint texel) { return uintBitsToFloat(imageLoad(x, int(texel)) << 16); }
#else
layout(binding = 0, X_FORMAT) uniform readonly restrict imageBuffer x;
vec4 load_x(uint texel) { return imageLoad(x, int(texel)); }
#endif
#include "push/texel_matmul.glsl"

// The lane's row n of w; the subgroup's begin at n0.
uint row_of(uint n0, uint n) {
  uint lane = gl_SubgroupInvocationID, apart = gl_SubgroupSize;
  return n0 + (GEGLU ? (n / 2 * apart + lane) * 2 + n % 2 : n * apart + lane);
}

void main() {
  uint rows = load_uint(count);
  rows = rows > first_row ? rows - first_row : 0;
  uint m0 = gl_WorkGroupID.y * ROWS;
  uint subgroup = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
  uint n0 = subgroup * gl_SubgroupSize * COLUMNS;
  if (m0 >= rows || n0 >= n_dim) return;

  float sum[ROWS][COLUMNS];
  TexelRow w[COLUMNS];
  [[unroll]] for (uint n = 0; n < COLUMNS; ++n) {
    w[n] = texel_row(min(row_of(n0, n), n_dim - 1), k_dim);
    [[unroll]] for (uint m = 0; m < ROWS; ++m) sum[m][n] = 0.0;
  }
  uint at[ROWS];  // the lane's part of a block of x: four elements
  [[unroll]] for (uint m = 0; m < ROWS; ++m) {
    at[m] = min(m0 + m, rows - 1) * (k_dim / 4) + (gl_SubgroupInvocationID & 7);
  }
  for (uint block = 0; block < k_dim / 32; ++block) {
    if (kIsBlocks && (block & 7) == 0) {
      [[unroll]] for (uint n = 0; n < COLUMNS; ++n) load_group(w[n], block / 8);
    }
    vec4 xs[ROWS];
    [[unroll]] for (uint m = 0; m < ROWS; ++m) xs[m] = load_x(at[m] + block * 8);
    [[unroll]] for (uint n = 0; n < COLUMNS; ++n) {
      WeightBlock b = load_block(w[n], block);
      float part[ROWS];
      [[unroll]] for (uint m = 0; m < ROWS; ++m) part[m] = 0.0;
      [[unroll]] for (uint j = 0; j < 8; ++j) {
        vec4 wv = kOneScale ? block_codes(b, j) : block_vec4(b, j);
        [[unroll]] for (uint e = 0; e < 4; ++e) {
          [[unroll]] for (uint m = 0; m < ROWS; ++m) {
            part[m] = fma(subgroupShuffle(xs[m][e], j), wv[e], part[m]);
          }
        }
      }
      [[unroll]] for (uint m = 0; m < ROWS; ++m) {
        sum[m][n] = kOneScale ? fma(b.scale.x, part[m], sum[m][n]) : sum[m][n] + part[m];
      }
    }
  }
  [[unroll]] for (uint m = 0; m < ROWS; ++m) {
    if (m0 + m >= rows) break;
    uint64_t to = destination + (uint64_t(m0 + m) * out_stride + out_column) * 4;
    [[unroll]] for (uint n = 0; n < COLUMNS; n += GEGLU ? 2 : 1) {
      uint row = row_of(n0, n);
      if (row >= n_dim) continue;
      if (GEGLU) {
        Float(to + row / 2 * 4).v = gelu_tanh(sum[m][n]) * sum[m][n + 1];
      } else {
        Float(to + row * 4).v = sum[m][n];
      }
    }
  }
}
