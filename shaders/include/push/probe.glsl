// Push constants of linear/coop_probe.comp, linear/byte_probe.comp.
PUSH_BLOCK(ProbePush)
  uint64_t destination;  // uint32 words; coop_probe: a lane's numbers of elements of A and of C,
                         // then [2, 32, 16] 16 row + column, of A and of C; byte_probe: a lane's
                         // number of elements, 0, then [32, 16] 8 row + column
PUSH_END
