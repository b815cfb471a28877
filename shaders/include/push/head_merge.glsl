// Push constants of head/head_merge.comp.
PUSH_BLOCK(HeadMergePush)
  uint64_t step;
  uint64_t logits;   // float32 [outputs of the tile, logit_stride]
  uint64_t slices;   // [outputs of the tile, num_slices], see head_slice.comp
  uint64_t results;  // OutputResult [outputs]
  uint64_t sums;     // float32 [outputs, 2]: highest logit, sum of exp(logit - highest)
  uint64_t guesses;  // uint [outputs], what the next step is fed from
  uint64_t guessed;  // the same, for the host
  uint vocab_size;
  uint logit_stride;
  uint num_slices;
  uint first_output;
PUSH_END
