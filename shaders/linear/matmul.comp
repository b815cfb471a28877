// out[m, n] = sum_k x[m, k] * w[n, k], or with GEGLU
// out[m, i] = gelu_tanh(gate) * up, gate and up the products of w's rows 2i and 2i + 1.
//
// A lane owns COLUMNS rows of w, a subgroup's size apart, so that each load of the subgroup reads
// one run (with GEGLU pairs of neighbours, as far apart), and ROWS rows of x.  Every output is one
// chain of fused multiply-adds over k in ascending order, whatever ROWS and COLUMNS are: so a row's
// results do not depend on the rows beside it.  x comes in spread over eight lanes and goes
// round by shuffles; w comes in 16-byte pieces.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "geglu.glsl"
#include "memory.glsl"
#include "weights.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint ROWS = 1;
layout(constant_id = 5) const uint COLUMNS = 2;
layout(constant_id = 6) const uint X_FORMAT = 0;  // kActivationF32, kActivationF16 or kActivationBf16
layout(constant_id = 7) const bool GEGLU = false;
#include "push/matmul.glsl"

vec4 load_x(uint row, uint k) {
  uint64_t element = uint64_t(row) * k_dim + k;
  if (X_FORMAT == kActivationF16) return load_half4(x + element * 2);
  if (X_FORMAT == kActivationBf16) return load_bf16x4(x + element * 2);
  return load_vec4(x + element * 4);
}

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
  WeightRow w[COLUMNS];
  [[unroll]] for (uint n = 0; n < COLUMNS; ++n) {
    w[n] = weight_row(plane, min(row_of(n0, n), n_dim - 1), k_dim);
    [[unroll]] for (uint m = 0; m < ROWS; ++m) sum[m][n] = 0.0;
  }
  uint lane_k = (gl_SubgroupInvocationID & 7) * 4;
  for (uint block = 0; block < k_dim / 32; ++block) {
    vec4 xs[ROWS];
    [[unroll]] for (uint m = 0; m < ROWS; ++m) {
      xs[m] = load_x(min(m0 + m, rows - 1), block * 32 + lane_k);
    }
    WeightBlock b[COLUMNS];
    [[unroll]] for (uint n = 0; n < COLUMNS; ++n) b[n] = load_block(w[n], block);
    [[unroll]] for (uint j = 0; j < 8; ++j) {
      vec4 wv[COLUMNS];
      [[unroll]] for (uint n = 0; n < COLUMNS; ++n) wv[n] = block_vec4(b[n], j);
      [[unroll]] for (uint m = 0; m < ROWS; ++m) {
        vec4 xv = subgroupShuffle(xs[m], j);
        [[unroll]] for (uint n = 0; n < COLUMNS; ++n) {
          [[unroll]] for (uint e = 0; e < 4; ++e) sum[m][n] = fma(xv[e], wv[n][e], sum[m][n]);
        }
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
