// From the fused projection to q, k and v ready for use, in float16:
// q, k: rmsnorm over the head times weight, then rotation of the pairs (i, i + head_dim / 2) by
// position * theta^(-2 i / head_dim) (Su et al. 2021); v: as it is.
// The angle of position p is the sum of those of 256 * (p / 256) and p % 256, whose cosines and
// sines lie in a table [context / 256 + 256, head_dim / 2, 2] made in double precision.
// One subgroup a head: x head (q heads, k heads, v heads), y row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "step.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push {
  uint64_t step;
  uint64_t qkv;       // float32 [rows, (num_heads + 2 num_kv_heads) * head_dim]
  uint64_t q;         // float16 [rows, num_heads, head_dim]
  uint64_t k;         // float16 [rows, num_kv_heads, head_dim]
  uint64_t v;         // likewise
  uint64_t q_weight;  // float32 [head_dim]
  uint64_t k_weight;
  uint64_t rotation;  // the table: first positions below 256, then multiples of 256
  uint num_heads;
  uint num_kv_heads;
  uint head_dim;  // a multiple of 8
  float epsilon;
};

// cos and sin of four neighbouring pairs at one position.
void rotation_of(uint position, uint pair, out vec4 c, out vec4 s) {
  uint64_t row = uint64_t(head_dim) * 4;  // head_dim / 2 pairs of floats
  uint64_t low = rotation + (position & 255) * row + pair * 8;
  uint64_t high = rotation + (256 + position / 256) * row + pair * 8;
  vec4 a = load_vec4(low), b = load_vec4(low + 16);
  vec4 p = load_vec4(high), q4 = load_vec4(high + 16);
  vec4 ca = vec4(a.xz, b.xz), sa = vec4(a.yw, b.yw);
  vec4 cb = vec4(p.xz, q4.xz), sb = vec4(p.yw, q4.yw);
  c = ca * cb - sa * sb;
  s = sa * cb + ca * sb;
}

void main() {
  uint row = gl_WorkGroupID.y;
  if (row >= num_rows(step)) return;
  uint head = gl_WorkGroupID.x;
  uint total_heads = num_heads + 2 * num_kv_heads;
  uint64_t from = qkv + (uint64_t(row) * total_heads + head) * head_dim * 4;
  uint lane = gl_SubgroupInvocationID * 4, stride = gl_SubgroupSize * 4;
  if (head >= num_heads + num_kv_heads) {
    uint v_head = head - num_heads - num_kv_heads;
    uint64_t to = v + (uint64_t(row) * num_kv_heads + v_head) * head_dim * 2;
    for (uint i = lane; i < head_dim; i += stride) store_half4(to + i * 2, load_vec4(from + i * 4));
    return;
  }
  float sum = 0.0;
  for (uint i = lane; i < head_dim; i += stride) {
    vec4 x = load_vec4(from + i * 4);
    sum += dot(x, x);
  }
  float factor = 1.0 / sqrt(subgroup_sum(sum) / float(head_dim) + epsilon);
  bool is_q = head < num_heads;
  uint64_t weight = is_q ? q_weight : k_weight;
  uint64_t to = is_q ? q + (uint64_t(row) * num_heads + head) * head_dim * 2
                     : k + (uint64_t(row) * num_kv_heads + head - num_heads) * head_dim * 2;
  uint position = row_position(step, row);
  uint half_dim = head_dim / 2;
  for (uint i = lane; i < half_dim; i += stride) {
    vec4 x = load_vec4(from + i * 4) * factor * load_vec4(weight + i * 4);
    vec4 y = load_vec4(from + (i + half_dim) * 4) * factor * load_vec4(weight + (i + half_dim) * 4);
    vec4 c, s;
    rotation_of(position, i, c, s);
    store_half4(to + i * 2, x * c - y * s);
    store_half4(to + (i + half_dim) * 2, y * c + x * s);
  }
}
