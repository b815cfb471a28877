// Push constants of norm/add_norm_wide.comp, norm/add_norm.comp.
PUSH_BLOCK(AddNormPush)
  uint64_t step;
  uint64_t source;       // float32 [SPLIT_K, split_stride], rows of cols elements
  uint64_t weight;       // float32 [cols]
  uint64_t residual;     // float32 [rows, cols]
  uint64_t next_weight;  // float32 [cols], or 0
  uint64_t normed;       // activations [rows, cols]
  uint cols;             // a multiple of 4; of 32 for int8
  float epsilon;
  uint split_stride;  // elements; add_norm.comp ignores it: its source is one sum
  uint64_t updated;   // float32 [rows, cols], may be `residual`
  PUSH_PHASE
PUSH_END
