// Push constants of memory/pool.comp.
PUSH_BLOCK(PoolPush)
  uint64_t step;
  uint64_t source;       // float32 [rows, cols]
  uint64_t destination;  // float32 [num_pooled, cols]
  uint cols;             // a multiple of 4
PUSH_END
