// Push constants of attention/tiled.comp, attention/tiled_quads.comp, attention/tiled_rows.comp.
PUSH_BLOCK(TiledPush)
  uint64_t step;
  uint64_t rows;   // AttentionRow [rows]
  uint64_t tiles;  // AttentionTile [tiles]
  uint64_t q;      // float16 [rows, num_heads, HEAD_DIM]
  uint64_t k_cache;
  uint64_t v_cache;
  uint64_t destination;  // FORMAT [rows, num_heads * HEAD_DIM]
  uint num_heads;
  uint num_kv_heads;
  uint group;   // KvGroup
  uint window;  // 0: none
  float scale;
PUSH_END
