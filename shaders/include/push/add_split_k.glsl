// Push constants of memory/add_split_k.comp.
PUSH_BLOCK(AddSplitKPush)
  uint64_t count;        // address of the number of rows
  uint64_t source;       // float32 [SPLIT_K, split_stride], rows of cols elements
  uint64_t destination;  // float32 [rows, cols]
  uint cols;             // a multiple of 4
  uint split_stride;     // elements
PUSH_END
