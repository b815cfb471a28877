// Soft tokens before their projection: squares of POOL x POOL patches averaged, then normed.
//
//   x = mean of source[row, :] over the square's rows
//   destination = x / sqrt(mean(x^2) + epsilon) * weight
//
// One workgroup a square, in reading order.  Its rows are read twice, the second time from caches.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
#include "reduce.glsl"
#include "rms_norm.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint OUT_FORMAT = 0;
layout(constant_id = 4) const uint POOL = 4;
#include "push/pool_patches.glsl"

// Elements [i, i + 4); `first`: those of the square's first row.
vec4 mean_of_rows(uint64_t first, uint i) {
  vec4 sum = vec4(0.0);
  for (uint y = 0; y < POOL; ++y) {
    for (uint x = 0; x < POOL; ++x) {
      sum += load_vec4(first + (uint64_t(y * side + x) * cols + i) * 4);
    }
  }
  return sum * (1.0 / float(POOL * POOL));
}

void main() {
  uint squares = side / POOL, index = gl_WorkGroupID.x, stride = gl_WorkGroupSize.x * 4;
  uint row = (index / squares * side + index % squares) * POOL;
  uint64_t first = source + uint64_t(row) * cols * 4;
  float sum = 0.0;
  for (uint i = gl_LocalInvocationIndex * 4; i < cols; i += stride) {
    vec4 x = mean_of_rows(first, i);
    sum += dot(x, x);
  }
  float factor = rms_factor(workgroup_sum(sum), cols, epsilon);
  uint64_t to = activation_row(destination, OUT_FORMAT, cols, index);
  for (uint i = gl_LocalInvocationIndex * 4; i < cols; i += stride) {
    vec4 y = rms_normed(mean_of_rows(first, i), factor, load_vec4(weight + i * 4));
    store_activation(OUT_FORMAT, to, i, y, true);
  }
}
