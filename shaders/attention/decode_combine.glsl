// decode.comp: the results of pieces in memory, and their sum.
#ifndef TANDEM_DECODE_COMBINE_GLSL
#define TANDEM_DECODE_COMBINE_GLSL

// Of a part of a row: float32 [MAX_PIECES + 1, QUERIES, HEAD_DIM], then (max, sum) of each head 16
// bytes apart.
uint64_t partial_sum(uint64_t block, uint piece, uint quad) {
  return block + (piece * QUERIES * kQuads + quad) * 16;
}
uint64_t partial_total(uint64_t block, uint piece, uint h) {
  return block + ((MAX_PIECES + 1) * kQuads + piece) * QUERIES * 16 + h * 16;
}

// Adds the pieces up in their order and writes the result.
void combine(uint64_t block, uint count, uint64_t to, uint column, uint thread) {
  for (uint h = gl_SubgroupID; h < QUERIES; h += kSubgroups) {
    float highest = kLowest;
    for (uint i = gl_SubgroupInvocationID; i < count; i += LANES) {
      vec2 own = Shared2(partial_total(block, i, h)).v;
      pieces[i * QUERIES + h] = own;
      highest = max(highest, own.x);
    }
    highest = subgroup_max(highest);
    float sum = 0.0;
    for (uint i = gl_SubgroupInvocationID; i < count; i += LANES) {
      vec2 own = pieces[i * QUERIES + h];
      own.x = exp2(own.x - highest);
      pieces[i * QUERIES + h] = own;
      sum = fma(own.x, own.y, sum);
    }
    sum = subgroup_sum(sum);
    if (gl_SubgroupInvocationID == 0) factors[h] = 1.0 / sum;
  }
  barrier();
  // The pieces are dealt out to the threads that share four results; their sums are then added.
  for (uint at = thread; at < kSplits * kAll; at += THREADS) {
    const uint kBatch = 16;
    uint quad = at % kAll;
    vec4 sum = vec4(0.0);
    for (uint i = at / kAll; i < count; i += kSplits * kBatch) {
      vec4 x[kBatch];
      [[unroll]] for (uint j = 0; j < kBatch; ++j) {
        x[j] = Shared4(partial_sum(block, min(i + j * kSplits, count - 1), quad)).v;
      }
      [[unroll]] for (uint j = 0; j < kBatch; ++j) {
        uint piece = i + j * kSplits;
        float weight = piece < count ? pieces[piece * QUERIES + quad / kQuads].x : 0.0;
        sum = fma(vec4(weight), x[j], sum);
      }
    }
    sums[at] = sum;
  }
  barrier();
  for (uint first = 0; first < kAll; first += THREADS) {
    bool is_there = first + thread < kAll;
    uint quad = is_there ? first + thread : 0;
    vec4 sum = vec4(0.0);
    for (uint s = 0; s < kSplits; ++s) sum += sums[s * kAll + quad];
    store_activation(FORMAT, to, column + quad * 4, sum * factors[quad / kQuads], is_there);
  }
}
#endif
