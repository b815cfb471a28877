// Stores k and v of every row in the cache, at the row's position.  x KV head, y row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "kv_cache.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push {
  uint64_t step;
  uint64_t k;  // float16 [rows, num_kv_heads, head_dim]
  uint64_t v;
  uint64_t k_cache;
  uint64_t v_cache;
  uint num_kv_heads;
  uint head_dim;  // a multiple of 8
  uint block_tokens;
  uint group;  // KvGroup
};

void main() {
  uint row = gl_WorkGroupID.y;
  if (row >= num_rows(step)) return;
  uint kv_head = gl_WorkGroupID.x;
  uint64_t table = row_block_table(step, row, group);
  uint vector = kv_vector(table, row_position(step, row), block_tokens, num_kv_heads, kv_head);
  uint64_t to = uint64_t(vector) * head_dim * 2;
  uint64_t from = (uint64_t(row) * num_kv_heads + kv_head) * head_dim * 2;
  for (uint i = gl_LocalInvocationIndex * 16; i < head_dim * 2; i += gl_WorkGroupSize.x * 16) {
    Wide(k_cache + to + i).v = Wide(k + from + i).v;
    Wide(v_cache + to + i).v = Wide(v + from + i).v;
  }
}
