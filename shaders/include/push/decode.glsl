// Push constants of attention/decode.comp.
PUSH_BLOCK(DecodePush)
  uint64_t step;
  uint64_t rows;  // AttentionRow [rows]
  uint64_t q;     // float16 [rows, num_heads, HEAD_DIM]; FRESH: float32 [rows, qkv_dim]
  uint64_t k_cache;
  uint64_t v_cache;
  uint64_t destination;  // FORMAT [rows, num_heads * HEAD_DIM]
  uint64_t partials;     // see partial_sum
  uint64_t counters;     // uint32 [rows, parts]: pieces done; zero before and after
  uint64_t q_weight;     // float32 [HEAD_DIM], FRESH only as the next
  uint64_t k_weight;
  uint64_t rotation;
  uint num_heads;
  uint num_kv_heads;
  uint group;   // KvGroup
  uint window;  // 0: none
  uint slots;
  uint first_row;
  float scale;
  float epsilon;
  PUSH_PHASE
PUSH_END
