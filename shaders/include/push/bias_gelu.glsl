// Push constants of vision/bias_gelu.comp.
PUSH_BLOCK(BiasGeluPush)
  uint64_t source;       // float32 [rows, cols]
  uint64_t bias;         // float32 [cols]
  uint64_t destination;  // activations [rows, stride]
  uint cols;             // a multiple of 4
  uint stride;           // a multiple of 4, cols or more
PUSH_END
