// out[o, :] = x[row(o), :] / sqrt(mean(x[row(o), :]^2) + eps) * weight   (Zhang, Sennrich 2019)
// One workgroup a row.  With GATHER the rows are those of the step's outputs.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
#include "reduce.glsl"
#include "rms_norm.glsl"
#include "step.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const bool GATHER = false;
layout(constant_id = 4) const uint OUT_FORMAT = 0;
#include "push/rms_norm.glsl"

void main() {
  uint row = gl_WorkGroupID.x;
  uint from_row = row;
  if (GATHER) {
    if (row + first_row >= num_outputs(step)) return;
    from_row = output_row(step, row + first_row);
  } else if (row >= num_rows(step)) {
    return;
  }
  uint64_t from = source + uint64_t(from_row) * cols * 4;
  uint64_t to = activation_row(destination, OUT_FORMAT, cols, row);
  float sum = 0.0;
  for (uint i = gl_LocalInvocationIndex * 4; i < cols; i += gl_WorkGroupSize.x * 4) {
    vec4 x = load_vec4(from + i * 4);
    sum += dot(x, x);
  }
  float factor = rms_factor(workgroup_sum(sum), cols, epsilon);
  for (uint i = gl_LocalInvocationIndex * 4; i < cols; i += gl_WorkGroupSize.x * 4) {
    vec4 x = rms_normed(load_vec4(from + i * 4), factor, load_vec4(weight + i * 4));
    store_activation(OUT_FORMAT, to, i, x, true);
  }
}
