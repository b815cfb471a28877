// Push constants of norm/rms_norm.comp.
PUSH_BLOCK(RmsNormPush)
  uint64_t step;
  uint64_t source;       // float32 [rows, cols]
  uint64_t weight;       // float32 [cols]
  uint64_t destination;  // activations [rows, cols]
  uint cols;             // a multiple of 4; of 32 for int8
  float epsilon;
  uint first_row;  // first output of this tile (GATHER)
PUSH_END
