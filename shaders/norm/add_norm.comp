// residual[row, :] += rmsnorm(x[row, :]) * weight; then, where next_weight is not 0,
// normed[row, :] = rmsnorm(residual[row, :]) * next_weight.  One workgroup a row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
#include "reduce.glsl"
#include "step.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint OUT_FORMAT = 0;
layout(push_constant, scalar) uniform Push {
  uint64_t step;
  uint64_t source;       // float32 [rows, cols]
  uint64_t weight;       // float32 [cols]
  uint64_t residual;     // float32 [rows, cols], read and written
  uint64_t next_weight;  // float32 [cols], or 0
  uint64_t normed;       // activations [rows, cols]
  uint cols;             // a multiple of 4; of 32 for int8
  float epsilon;
};

void main() {
  uint row = gl_WorkGroupID.x;
  if (row >= num_rows(step)) return;
  uint64_t base = uint64_t(row) * cols * 4;
  float sum = 0.0;
  for (uint i = gl_LocalInvocationIndex * 4; i < cols; i += gl_WorkGroupSize.x * 4) {
    vec4 x = load_vec4(source + base + i * 4);
    sum += dot(x, x);
  }
  float factor = 1.0 / sqrt(workgroup_sum(sum) / float(cols) + epsilon);
  sum = 0.0;
  for (uint i = gl_LocalInvocationIndex * 4; i < cols; i += gl_WorkGroupSize.x * 4) {
    vec4 x = load_vec4(source + base + i * 4) * factor * load_vec4(weight + i * 4);
    x += load_vec4(residual + base + i * 4);
    store_vec4(residual + base + i * 4, x);
    sum += dot(x, x);
  }
  if (next_weight == 0) return;
  factor = 1.0 / sqrt(workgroup_sum(sum) / float(cols) + epsilon);
  uint64_t to = normed + row * activation_row_bytes(OUT_FORMAT, cols);
  // Each invocation reads back what it wrote itself.
  for (uint i = gl_LocalInvocationIndex * 4; i < cols; i += gl_WorkGroupSize.x * 4) {
    vec4 x = load_vec4(residual + base + i * 4);
    store_activation(OUT_FORMAT, to, i, x * factor * load_vec4(next_weight + i * 4), true);
  }
}
