// Push constants of measure/read_rate.comp.
PUSH_BLOCK(ReadRatePush)
  uint64_t source;
  uint64_t sink;  // written if the words read xor to `key`, which those of the buffer do not
  uint rounds;    // of 16 LOADS bytes a thread
  uint key;
PUSH_END
