// Push constants of head/head_slice.comp.
PUSH_BLOCK(HeadSlicePush)
  uint64_t step;
  uint64_t logits;  // float32 [outputs of the tile, logit_stride]
  uint64_t slices;  // [outputs of the tile, slices]: highest, sum, count, not finite; candidates
  uint64_t masks;   // uint [masks of the step, words of vocab_size bits]
  uint vocab_size;
  uint logit_stride;
  uint slice_len;
  uint first_output;
PUSH_END
