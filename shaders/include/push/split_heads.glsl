// Push constants of vision/split_heads.comp.
PUSH_BLOCK(SplitHeadsPush)
  uint64_t sums;    // float32 [rows, 3, num_heads, HEAD_DIM]
  uint64_t q_bias;  // float32 [num_heads, HEAD_DIM]
  uint64_t k_bias;
  uint64_t v_bias;
  uint64_t q;        // float16 [rows, num_heads, HEAD_DIM]
  uint64_t k_cache;  // float16 [blocks, num_heads, block_tokens, HEAD_DIM]
  uint64_t v_cache;
  uint num_heads;
  uint block_tokens;
PUSH_END
