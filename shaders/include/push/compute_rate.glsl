// Push constants of measure/fma_rate.comp, measure/matrix_rate.comp.
PUSH_BLOCK(ComputeRatePush)
  uint64_t sink;  // written if the sum is negative, which it never is
  uint rounds;    // fma_rate: of 16 CHAINS multiply-adds a thread; matrix_rate: of sixteen
                  // products a subgroup
  float factor;   // positive; fma_rate: below 1
PUSH_END
