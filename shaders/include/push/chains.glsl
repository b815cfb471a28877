// Push constants of attention/chains.comp.
PUSH_BLOCK(ChainsPush)
  uint64_t step;
  uint64_t rows;   // AttentionRow [rows]
  uint64_t tiles;  // AttentionTile [tiles]
  uint64_t q;      // float32 [rows, qkv_dim]: the fused projection
  uint64_t k_cache;
  uint64_t v_cache;
  uint64_t destination;  // FORMAT [rows, num_heads * HEAD_DIM]
  uint64_t q_weight;     // float32 [HEAD_DIM]
  uint64_t k_weight;
  uint64_t rotation;
  uint num_heads;
  uint num_kv_heads;
  uint group;   // KvGroup
  uint window;  // 0: none
  float scale;
  float epsilon;
PUSH_END
