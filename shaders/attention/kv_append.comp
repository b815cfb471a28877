// Stores k and v of every row in the cache, at the row's position.  x KV head, y row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "kv_cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint KV_FORMAT = 0;
#include "push/kv_append.glsl"

void append(uint64_t cache, uint vector, uint i, uint64_t from) {
  store_kv4(KV_FORMAT, cache, vector, i, kv_pack4(KV_FORMAT, load_half4(from + i * 2)),
            block_tokens, head_dim);
}

void main() {
  uint row = gl_WorkGroupID.y;
  if (row >= num_rows(step)) return;
  uint kv_head = gl_WorkGroupID.x;
  uint64_t table = row_block_table(step, row, group);
  uint vector = kv_vector(table, row_position(step, row), block_tokens, num_kv_heads, kv_head);
  uint64_t from = (uint64_t(row) * num_kv_heads + kv_head) * head_dim * 2;
  for (uint i = gl_SubgroupInvocationID * 4; i < head_dim; i += gl_SubgroupSize * 4) {
    append(k_cache, vector, i, k + from);
    append(v_cache, vector, i, v + from);
  }
}
