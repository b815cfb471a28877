// Push constants of attention/qk_norm_rope.comp.
PUSH_BLOCK(QkNormRopePush)
  uint64_t step;
  uint64_t qkv;       // float32 [rows, (num_heads + 2 num_kv_heads) * head_dim]
  uint64_t q;         // float16 [rows, num_heads, head_dim]
  uint64_t k;         // float16 [rows, num_kv_heads, head_dim], or the layer's cache
  uint64_t v;         // likewise
  uint64_t q_weight;  // float32 [head_dim]
  uint64_t k_weight;
  uint64_t rotation;  // the table: first positions below 256, then multiples of 256
  uint num_heads;
  uint num_kv_heads;
  uint head_dim;  // a multiple of 8
  float epsilon;
  uint block_tokens;  // of the cache
  uint group;         // KvGroup
PUSH_END
