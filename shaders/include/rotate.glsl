// Norm and rotation of one head by one subgroup: rmsnorm over the head times weight, then rotation
// of the pairs (i, i + head_dim / 2) by position * theta^(-2 i / head_dim) (Su et al. 2021).
// The angle of position p is the sum of those of 256 * (p / 256) and p % 256, whose cosines and
// sines lie in a table [context / 256 + 256, head_dim / 2, 2] made in double precision.
#ifndef TANDEM_ROTATE_GLSL
#define TANDEM_ROTATE_GLSL
#include "memory.glsl"

// Four floats, `i` on from where a head, a norm's weights or the table begin: the including shader
// says what `from`, `weight` and `table` are.  i is a multiple of four.
vec4 load_head(uint64_t from, uint i);
vec4 load_head_weight(uint64_t weight, uint i);
vec4 load_rotation(uint64_t table, uint i);

// 1 / rms of head_dim float32.  The whole subgroup calls it.
float head_factor(uint64_t from, uint head_dim, float epsilon) {
  float sum = 0.0;
  for (uint i = gl_SubgroupInvocationID * 4; i < head_dim; i += gl_SubgroupSize * 4) {
    vec4 x = load_head(from, i);
    sum += dot(x, x);
  }
  return 1.0 / sqrt(subgroup_sum(sum) / float(head_dim) + epsilon);
}

// cos and sin of four neighbouring pairs at one position.
void rotation_of(uint64_t table, uint head_dim, uint position, uint pair, out vec4 c, out vec4 s) {
  uint low = (position & 255) * head_dim + pair * 2;  // head_dim / 2 pairs of floats a row
  uint high = (256 + position / 256) * head_dim + pair * 2;
  vec4 a = load_rotation(table, low), b = load_rotation(table, low + 4);
  vec4 p = load_rotation(table, high), q = load_rotation(table, high + 4);
  vec4 ca = vec4(a.xz, b.xz), sa = vec4(a.yw, b.yw);
  vec4 cb = vec4(p.xz, q.xz), sb = vec4(p.yw, q.yw);
  c = ca * cb - sa * sb;
  s = sa * cb + ca * sb;
}

// Elements [i, i + 4) of the result and those head_dim / 2 further on.
struct RotatedPairs {
  vec4 low, high;
};
RotatedPairs rotated_pairs(uint64_t from, uint64_t weight, uint64_t table, uint head_dim,
                           uint position, float factor, uint i) {
  uint half_dim = head_dim / 2;
  vec4 x = load_head(from, i) * factor * load_head_weight(weight, i);
  vec4 y = load_head(from, i + half_dim) * factor * load_head_weight(weight, i + half_dim);
  vec4 c, s;
  rotation_of(table, head_dim, position, i, c, s);
  return RotatedPairs(x * c - y * s, y * c + x * s);
}
#endif
