// As add_norm.comp, for wide workgroups: x is the sum of SPLIT_K partial sums of a split-K matmul,
// added in order.  A row stays in registers (HELD pieces of four elements a thread), and all loads
// start before the first result is used.  One workgroup a row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
#include "reduce.glsl"
#include "rms_norm.glsl"
#include "norm_rows.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 32;
layout(constant_id = 3) const uint OUT_FORMAT = 0;
layout(constant_id = 4) const uint SPLIT_K = 1;
layout(constant_id = 5) const uint HELD = 1;  // HELD * THREADS * 4 >= cols
#include "push/add_norm.glsl"
#include "phase.glsl"

void main() {
  NormRow row = norm_row(step);
  if (!row.exists) {
    skip_phase();
    return;
  }
  uint64_t base = uint64_t(row.source) * cols * 4, kept = uint64_t(row.residual) * cols * 4;
  bool has_next = next_weight != 0;
  vec4 parts[HELD * SPLIT_K], x[HELD], scale[HELD], next_scale[HELD];
  [[unroll]] for (uint j = 0; j < HELD; ++j) {
    uint i = (j * THREADS + gl_LocalInvocationIndex) * 4;
    scale[j] = next_scale[j] = vec4(0.0);
    if (i >= cols) continue;
    scale[j] = load_vec4(weight + i * 4);
    if (has_next) next_scale[j] = load_vec4(next_weight + i * 4);
  }
  await_phase();
  [[unroll]] for (uint j = 0; j < HELD; ++j) {
    uint i = (j * THREADS + gl_LocalInvocationIndex) * 4;
    x[j] = vec4(0.0);
    [[unroll]] for (uint s = 0; s < SPLIT_K; ++s) parts[j * SPLIT_K + s] = vec4(0.0);
    if (i >= cols) continue;
    [[unroll]] for (uint s = 0; s < SPLIT_K; ++s) {
      uint64_t part = source + uint64_t(s) * split_stride * 4;
      parts[j * SPLIT_K + s] = load_passed_vec4(part + base + i * 4);
    }
    x[j] = load_passed_vec4(residual + kept + i * 4);
  }
  float sum = 0.0;
  vec4 y[HELD];
  [[unroll]] for (uint j = 0; j < HELD; ++j) {
    y[j] = parts[j * SPLIT_K];
    [[unroll]] for (uint s = 1; s < SPLIT_K; ++s) y[j] += parts[j * SPLIT_K + s];
    sum += dot(y[j], y[j]);
  }
  float factor = rms_factor(workgroup_sum(sum), cols, epsilon);
  sum = 0.0;
  [[unroll]] for (uint j = 0; j < HELD; ++j) {
    uint i = (j * THREADS + gl_LocalInvocationIndex) * 4;
    x[j] = add_rms_normed(x[j], y[j], factor, scale[j]);
    sum += dot(x[j], x[j]);
    if (i < cols) store_vec4(updated + kept + i * 4, x[j]);
  }
  if (!has_next) {
    end_phase();
    return;
  }
  factor = rms_factor(workgroup_sum(sum), cols, epsilon);
  uint64_t to = activation_row(normed, OUT_FORMAT, cols, gl_WorkGroupID.x);
  [[unroll]] for (uint j = 0; j < HELD; ++j) {
    uint i = (j * THREADS + gl_LocalInvocationIndex) * 4;
    store_activation(OUT_FORMAT, to, i, rms_normed(x[j], factor, next_scale[j]), i < cols);
  }
  end_phase();
}
