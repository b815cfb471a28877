// Push constants of linear/matvec.comp, linear/coop_matvec.comp.
PUSH_BLOCK(MatvecPush)
  uint64_t count;  // address of the number of rows of x
  uint64_t x;      // activations [rows, k_dim]
  uint64_t plane[4];
  uint64_t destination;  // float32 [SPLIT_K, split_stride], or activations (GEGLU)
  uint k_dim;            // a multiple of 32
  uint n_dim;            // rows of w in this shard; a multiple of 32 with GEGLU
  uint out_stride;       // columns of the whole output
  uint out_column;       // where this shard's outputs begin
  uint first_row;        // subtracted from the count
  uint split_stride;     // elements between two partial sums
  // With NORM_UNITS, x being float32 [NORM_SPLIT_K, k_dim]:
  uint64_t weight, next_weight;  // float32 [k_dim]
  uint64_t residual;             // float32 [k_dim]
  uint64_t updated;              // float32 [k_dim], or 0: not written
  float epsilon;
  float x_scale;  // coop_matvec.comp: of the input
  PUSH_PHASE
PUSH_END
