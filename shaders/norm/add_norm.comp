// updated[row, :] = residual[row, :] + rmsnorm(x[row, :]) * weight; then, where next_weight is not
// 0, normed[row, :] = rmsnorm(updated[row, :]) * next_weight.  One workgroup a row; which they are,
// and where in x, norm_rows.glsl says; in normed they follow one another.
// TEXELS: the inputs come through texel buffers.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
#include "reduce.glsl"
#include "rms_norm.glsl"
#include "norm_rows.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint OUT_FORMAT = 0;
#include "push/add_norm.glsl"

// Elements [4 i, 4 i + 4).
#ifdef TEXELS
layout(binding = 0, rgba32f) uniform readonly restrict imageBuffer source_texels;
layout(binding = 1, rgba32f) uniform readonly restrict imageBuffer weight_texels;
layout(binding = 2, rgba32f) uniform readonly imageBuffer residual_texels;
layout(binding = 3, rgba32f) uniform readonly restrict imageBuffer next_texels;
vec4 load_source(uint i) { return imageLoad(source_texels, int(i)); }
vec4 load_weight(uint i) { return imageLoad(weight_texels, int(i)); }
vec4 load_residual(uint i) { return imageLoad(residual_texels, int(i)); }
vec4 load_next_weight(uint i) { return imageLoad(next_texels, int(i)); }
#else
vec4 load_source(uint i) { return load_vec4(source + uint64_t(i) * 16); }
vec4 load_weight(uint i) { return load_vec4(weight + i * 16); }
vec4 load_residual(uint i) { return load_vec4(residual + uint64_t(i) * 16); }
vec4 load_next_weight(uint i) { return load_vec4(next_weight + i * 16); }
#endif

void main() {
  NormRow row = norm_row(step);
  if (!row.exists) return;
  uint count = cols / 4, base = row.source * count, kept = row.residual * count;
  float sum = 0.0;
  for (uint i = gl_LocalInvocationIndex; i < count; i += gl_WorkGroupSize.x) {
    vec4 x = load_source(base + i);
    sum += dot(x, x);
  }
  float factor = rms_factor(workgroup_sum(sum), cols, epsilon);
  float next_factor = 0.0;
  if (next_weight != 0) {
    sum = 0.0;
    for (uint i = gl_LocalInvocationIndex; i < count; i += gl_WorkGroupSize.x) {
      vec4 x = add_rms_normed(load_residual(kept + i), load_source(base + i), factor, load_weight(i));
      sum += dot(x, x);
    }
    next_factor = rms_factor(workgroup_sum(sum), cols, epsilon);
  }
  // Each invocation reads what no other writes.
  uint64_t to = activation_row(normed, OUT_FORMAT, cols, gl_WorkGroupID.x);
  for (uint i = gl_LocalInvocationIndex; i < count; i += gl_WorkGroupSize.x) {
    vec4 x = add_rms_normed(load_residual(kept + i), load_source(base + i), factor, load_weight(i));
    store_vec4(updated + uint64_t(kept + i) * 16, x);
    if (next_weight == 0) continue;
    store_activation(OUT_FORMAT, to, i * 4, rms_normed(x, next_factor, load_next_weight(i)), true);
  }
}
