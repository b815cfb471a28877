// Norm and rotation of one head by one subgroup: rmsnorm over the head times weight, then rotation
// of the pairs (i, i + head_dim / 2) by position * theta^(-2 i / head_dim) (Su et al. 2021).
// The angle of position p is the sum of those of 256 * (p / 256) and p % 256, whose cosines and
// sines lie in a table [context / 256 + 256, head_dim / 2, 2] made in double precision.
#ifndef TANDEM_ROTATE_GLSL
#define TANDEM_ROTATE_GLSL
#include "memory.glsl"
#include "rms_norm.glsl"

// Four floats, `i` on from where a head, a norm's weights or the table begin: the including shader
// says what `from`, `weight` and `table` are.  i is a multiple of four.
vec4 load_head(uint64_t from, uint i);
vec4 load_head_weight(uint64_t weight, uint i);
vec4 load_rotation(uint64_t table, uint i);

// The sum of the squares of four pairs: head_factor adds those of a lane, then the lanes.
float pairs_square(vec4 x, vec4 y) { return dot(x, x) + dot(y, y); }

// 1 / rms of head_dim float32.  The whole subgroup calls it.
float head_factor(uint64_t from, uint head_dim, float epsilon) {
  float sum = 0.0;
  for (uint i = gl_SubgroupInvocationID * 4; i < head_dim / 2; i += gl_SubgroupSize * 4) {
    sum += pairs_square(load_head(from, i), load_head(from, i + head_dim / 2));
  }
  return rms_factor(subgroup_sum(sum), head_dim, epsilon);
}

// What four neighbouring pairs [i, i + 4), [i + head_dim / 2, ...) take from memory.
struct PairInputs {
  vec4 x, y, x_weight, y_weight;
  vec4 low[2], high[2];  // cosines and sines of both parts of the angle
};
PairInputs load_pairs(uint64_t from, uint64_t weight, uint64_t table, uint head_dim, uint position,
                      uint i) {
  uint half_dim = head_dim / 2;
  uint low = (position & 255) * head_dim + i * 2;  // head_dim / 2 pairs of floats a row
  uint high = (256 + position / 256) * head_dim + i * 2;
  PairInputs inputs;
  inputs.x = load_head(from, i);
  inputs.y = load_head(from, i + half_dim);
  inputs.x_weight = load_head_weight(weight, i);
  inputs.y_weight = load_head_weight(weight, i + half_dim);
  inputs.low = vec4[2](load_rotation(table, low), load_rotation(table, low + 4));
  inputs.high = vec4[2](load_rotation(table, high), load_rotation(table, high + 4));
  return inputs;
}

// Elements [i, i + 4) of the result and those head_dim / 2 further on.
struct RotatedPairs {
  vec4 low, high;
};
RotatedPairs rotate_pairs(PairInputs inputs, float factor) {
  vec4 x = rms_normed(inputs.x, factor, inputs.x_weight);
  vec4 y = rms_normed(inputs.y, factor, inputs.y_weight);
  vec4 ca = vec4(inputs.low[0].xz, inputs.low[1].xz), sa = vec4(inputs.low[0].yw, inputs.low[1].yw);
  vec4 cb = vec4(inputs.high[0].xz, inputs.high[1].xz), sb = vec4(inputs.high[0].yw, inputs.high[1].yw);
  vec4 c = ca * cb - sa * sb, s = sa * cb + ca * sb;
  return RotatedPairs(x * c - y * s, y * c + x * s);
}
#endif
