// Push constants of memory/add_slices.comp.
PUSH_BLOCK(AddSlicesPush)
  uint64_t count;        // address of the number of rows
  uint64_t source;       // float32 [SLICES, slice_stride], rows of cols elements
  uint64_t destination;  // float32 [rows, cols]
  uint cols;             // a multiple of 4
  uint slice_stride;     // elements
PUSH_END
