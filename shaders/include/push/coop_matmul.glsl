// Push constants of linear/coop_matmul.comp.
PUSH_BLOCK(MatrixPush)
  uint64_t count;        // address of the number of rows of x
  uint64_t x;            // float16 [rows, k_dim]
  uint64_t plane[4];     // of w
  uint64_t destination;  // [rows, out_stride] of OUTPUT's type
  uint64_t workspace;    // float32 [split tiles, parts of k, ROWS * SUBGROUPS * COLUMNS]
  uint64_t arrivals;     // uint32 [split tiles], zero before and after
  uint64_t bias;         // float32 [out_stride], of kOutputBiasGeluF16 and kOutputHeadsF16
  uint k_dim;            // a multiple of 32
  uint n_dim;            // rows of w in this shard
  uint out_stride;
  uint out_column;  // where this shard's outputs begin
  uint first_row;   // subtracted from the count
  uint groups;      // that the device runs at once
  uint most_parts;  // of k
  uint fit;         // tiles' sums that fit the workspace
  float x_scale;
PUSH_END
