// The input of a matmul of one row: each workgroup computes the norm itself from the sums of the
// matmul before, in the same way as norm/add_norm_wide.comp:
//
//   updated = residual + rmsnorm(sum of x's NORM_SPLIT_K parts) * weight
//   staged  = rmsnorm(updated) * next_weight, as blocks of int8
//
// So each workgroup reads a few vectors, and no dispatch separates two matmuls.  The including
// shader defines the push constants, THREADS, NORM_UNITS, kStaged and staged.
#ifndef TANDEM_NORM_INPUT_GLSL
#define TANDEM_NORM_INPUT_GLSL
#include "activation.glsl"
#include "reduce.glsl"
#include "rms_norm.glsl"
#include "unit_weights.glsl"
layout(constant_id = 16) const uint NORM_SPLIT_K = 1;

// Pieces of four columns a thread.
const uint kHeld = NORM_UNITS == 0 ? 1 : (NORM_UNITS * 64 + THREADS - 1) / THREADS;

void stage_sums(uint to, uint lane);

// Column of a thread's piece j.
uint held_column(uint j) { return (j * THREADS + gl_LocalInvocationIndex) * 4; }

// Prefetches the norm weights before the wait, which would otherwise be followed by two waits for
// memory.  The dummy store is overwritten.
void touch_norm_weights() {
  vec4 sum = vec4(0.0);
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    uint k = held_column(j);
    if (k < k_dim) sum += load_vec4(weight + k * 4) + load_vec4(next_weight + k * 4);
  }
  staged[gl_LocalInvocationIndex % (NORM_UNITS * kStaged)] = floatBitsToUint(sum);
  barrier();
}

// By all threads of the workgroup; ends in a barrier.  Loads stand where few registers hold what
// they bring.
void stage_normed() {
  vec4 parts[kHeld * NORM_SPLIT_K], y[kHeld], row[kHeld], scale[kHeld];
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    uint k = held_column(j);
    row[j] = vec4(0.0);
    [[unroll]] for (uint s = 0; s < NORM_SPLIT_K; ++s) parts[j * NORM_SPLIT_K + s] = vec4(0.0);
    if (k >= k_dim) continue;
    [[unroll]] for (uint s = 0; s < NORM_SPLIT_K; ++s) {
      parts[j * NORM_SPLIT_K + s] = load_passed_vec4(x + (uint64_t(s) * k_dim + k) * 4);
    }
    row[j] = load_passed_vec4(residual + k * 4);
  }
  float squares = 0.0;
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    y[j] = parts[j * NORM_SPLIT_K];
    [[unroll]] for (uint s = 1; s < NORM_SPLIT_K; ++s) y[j] += parts[j * NORM_SPLIT_K + s];
    squares += dot(y[j], y[j]);
  }
  float factor = rms_factor(workgroup_sum(squares), k_dim, epsilon);
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    uint k = held_column(j);
    scale[j] = vec4(0.0);
    if (k < k_dim) scale[j] = load_vec4(weight + k * 4);
  }
  squares = 0.0;
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    uint k = held_column(j);
    row[j] = add_rms_normed(row[j], y[j], factor, scale[j]);
    squares += dot(row[j], row[j]);
    scale[j] = vec4(0.0);
    if (k < k_dim) scale[j] = load_vec4(next_weight + k * 4);
  }
  factor = rms_factor(workgroup_sum(squares), k_dim, epsilon);
  bool writes = gl_WorkGroupID.x == 0 && updated != 0;
  [[unroll]] for (uint j = 0; j < kHeld; ++j) {
    uint k = held_column(j);
    if (writes && k < k_dim) store_vec4(updated + k * 4, row[j]);
    vec4 v = rms_normed(row[j], factor, scale[j]);
    uint highest = max_of_eight(magnitude_bits(v));
    if (k >= NORM_UNITS * 256) continue;
    uint at = k / 256 * kStaged, within = k % 256;
    staged[at + within / 16][within / 4 % 4] = quantize4(v, block_inverse(highest));
    if (within % 32 == 0) {
      float block = block_scale(highest) * kByteScale;
      staged[at + 16 + within / 128][within / 32 % 4] = floatBitsToUint(block);
    }
  }
  barrier();
  if (!kHasMinimum) return;
  uint team = gl_LocalInvocationIndex / 32, lane = gl_LocalInvocationIndex % 32;
  for (uint u = team; u < NORM_UNITS; u += THREADS / 32) stage_sums(u * kStaged, lane);
  barrier();
}
#endif
