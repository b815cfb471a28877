// Adds the partial sums of a split-K matmul, in order, as norm/add_norm_wide.comp does.
// One workgroup a row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint SPLIT_K = 1;
#include "push/add_split_k.glsl"

void main() {
  uint row = gl_WorkGroupID.x;
  if (row >= load_uint(count)) return;
  uint64_t base = uint64_t(row) * cols * 4;
  for (uint i = gl_LocalInvocationIndex * 4; i < cols; i += gl_WorkGroupSize.x * 4) {
    vec4 parts[SPLIT_K];
    [[unroll]] for (uint s = 0; s < SPLIT_K; ++s) {
      parts[s] = load_vec4(source + uint64_t(s) * split_stride * 4 + base + i * 4);
    }
    vec4 sum = parts[0];
    [[unroll]] for (uint s = 1; s < SPLIT_K; ++s) sum += parts[s];
    store_vec4(destination + base + i * 4, sum);
  }
}
