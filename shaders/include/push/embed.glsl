// Push constants of memory/embed.comp.
PUSH_BLOCK(EmbedPush)
  uint64_t step;
  uint64_t plane[4];
  uint64_t destination;  // float32 [rows, cols]
  uint64_t guesses;      // uint [outputs of the step before]: tokens of rows that are fed
  uint64_t soft_tokens;  // PICTURES: float32 [rows, cols], rows of pictures
  uint first_token;      // of this shard
  uint num_tokens;
  uint cols;
  float scale;
PUSH_END
