// Push constants of attention/kv_append.comp.
PUSH_BLOCK(KvAppendPush)
  uint64_t step;
  uint64_t k;  // float16 [rows, num_kv_heads, head_dim]
  uint64_t v;
  uint64_t k_cache;
  uint64_t v_cache;
  uint num_kv_heads;
  uint head_dim;  // a multiple of 8
  uint block_tokens;
  uint group;  // KvGroup
PUSH_END
