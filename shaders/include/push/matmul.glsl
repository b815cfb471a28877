// Push constants of linear/matmul.comp.
PUSH_BLOCK(MatmulPush)
  uint64_t count;  // address of the number of rows of x
  uint64_t x;      // float32 or float16 [rows, k_dim]
  uint64_t plane[4];
  uint64_t destination;  // float32 [rows, out_stride]
  uint k_dim;            // a multiple of 32
  uint n_dim;            // rows of w in this shard
  uint out_stride;
  uint out_column;  // where this shard's outputs begin
  uint first_row;   // subtracted from the count
PUSH_END
