// Push constants of attention/attention.comp.
PUSH_BLOCK(AttentionPush)
  uint64_t step;
  uint64_t q;  // float16 [rows, num_heads, HEAD_DIM]
  uint64_t k_cache;
  uint64_t v_cache;
  uint64_t destination;  // float16 [rows, num_heads, HEAD_DIM]
  uint num_heads;
  uint num_kv_heads;
  uint block_tokens;
  uint group;   // KvGroup
  uint window;  // 0: none
  float scale;
PUSH_END
