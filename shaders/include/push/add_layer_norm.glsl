// Push constants of vision/add_layer_norm.comp.
PUSH_BLOCK(AddLayerNormPush)
  uint64_t source;     // float32 [rows, cols], or 0
  uint64_t bias;       // float32 [cols]
  uint64_t residual;   // float32 [rows, cols]
  uint64_t updated;    // float32 [rows, cols], may be `residual`
  uint64_t weight;     // float32 [cols]
  uint64_t norm_bias;  // float32 [cols]
  uint64_t normed;     // activations [rows, cols]
  uint cols;           // a multiple of 4
  uint rows;
  float epsilon;
PUSH_END
