// From the fused projection to q, k and v ready for use, in float16: q and k normed and rotated
// (rotate.glsl), v as it is.  APPEND: k and v go to the cache at once, at the row's position.
// BF16: in bfloat16, for an NPU that attends; without APPEND.
// One subgroup a head: x head (q heads, k heads, v heads), y row.
// TEXELS: the inputs come through texel buffers.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "kv_cache.glsl"
#include "rotate.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint APPEND = 0;
layout(constant_id = 4) const uint KV_FORMAT = 0;  // of the cache
layout(constant_id = 5) const bool BF16 = false;
#include "push/qk_norm_rope.glsl"

#ifdef TEXELS
// Heads and the table by their first element; weights: 0 q's, 1 k's.
layout(binding = 0, rgba32f) uniform readonly restrict imageBuffer qkv_texels;
layout(binding = 1, rgba32f) uniform readonly restrict imageBuffer q_weight_texels;
layout(binding = 2, rgba32f) uniform readonly restrict imageBuffer k_weight_texels;
layout(binding = 3, rgba32f) uniform readonly restrict imageBuffer rotation_texels;
vec4 load_head(uint64_t from, uint i) { return imageLoad(qkv_texels, int((uint(from) + i) / 4)); }
vec4 load_head_weight(uint64_t weight, uint i) {
  return weight == 0 ? imageLoad(q_weight_texels, int(i / 4))
                     : imageLoad(k_weight_texels, int(i / 4));
}
vec4 load_rotation(uint64_t table, uint i) {
  return imageLoad(rotation_texels, int((uint(table) + i) / 4));
}
#else
vec4 load_head(uint64_t from, uint i) { return load_vec4(from + i * 4); }
vec4 load_head_weight(uint64_t weight, uint i) { return load_vec4(weight + i * 4); }
vec4 load_rotation(uint64_t table, uint i) { return load_vec4(table + uint64_t(i) * 4); }
#endif

void store(uint format, uint64_t to, uint vector, uint i, vec4 x) {
  if (BF16) {
    store_bf16x4(to + (uint64_t(vector) * head_dim + i) * 2, x);
    return;
  }
  store_kv4(format, to, vector, i, kv_pack4(format, x), block_tokens, head_dim);
}

void main() {
  uint row = gl_WorkGroupID.y;
  if (row >= num_rows(step)) return;
  uint head = gl_WorkGroupID.x;
  uint total_heads = num_heads + 2 * num_kv_heads;
  uint64_t element = (uint64_t(row) * total_heads + head) * head_dim;
#ifdef TEXELS
  uint64_t from = element, q_norm = 0, k_norm = 1, table = 0;
#else
  uint64_t from = qkv + element * 4, q_norm = q_weight, k_norm = k_weight, table = rotation;
#endif
  uint lane = gl_SubgroupInvocationID * 4, stride = gl_SubgroupSize * 4;
  uint position = row_position(step, row);
  bool is_q = head < num_heads, is_k = !is_q && head < num_heads + num_kv_heads;
  // Where the head goes: a vector of rows of heads, or of the cache.
  uint64_t to = q;
  uint vector = row * num_heads + head, format = kKvF16;
  if (!is_q) {
    uint kv_head = head - num_heads - (is_k ? 0 : num_kv_heads);
    to = is_k ? k : v;
    vector = row * num_kv_heads + kv_head;
    if (APPEND != 0) {
      uint64_t blocks = row_block_table(step, row, group);
      vector = kv_vector(blocks, position, block_tokens, num_kv_heads, kv_head);
      format = KV_FORMAT;
    }
    if (!is_k) {
      for (uint i = lane; i < head_dim; i += stride) store(format, to, vector, i, load_head(from, i));
      return;
    }
  }
  float factor = head_factor(from, head_dim, epsilon);
  uint64_t weight = is_q ? q_norm : k_norm;
  for (uint i = lane; i < head_dim / 2; i += stride) {
    RotatedPairs pairs =
        rotate_pairs(load_pairs(from, weight, table, head_dim, position, i), factor);
    store(format, to, vector, i, pairs.low);
    store(format, to, vector, i + head_dim / 2, pairs.high);
  }
}
