// The paged KV cache of one layer: K and V each float16 [num_blocks, num_kv_heads, block_tokens,
// head_dim].
#ifndef TANDEM_KV_CACHE_GLSL
#define TANDEM_KV_CACHE_GLSL
#include "step.glsl"

// Index of a head's vector in K and V: REQUIRES the position's block is in the table.
uint kv_vector(uint64_t table, uint position, uint block_tokens, uint num_kv_heads, uint kv_head) {
  uint block = load_uint(table + uint64_t(position / block_tokens) * 4);
  return (block * num_kv_heads + kv_head) * block_tokens + position % block_tokens;
}
#endif
