// Push constants of vision/pool_patches.comp.
PUSH_BLOCK(PoolPatchesPush)
  uint64_t source;       // float32 [side, side, cols]
  uint64_t weight;       // float32 [cols]
  uint64_t destination;  // activations [(side / POOL)^2, cols]
  uint side;             // a multiple of POOL
  uint cols;             // a multiple of 4
  float epsilon;
PUSH_END
