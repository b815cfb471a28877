// decode.comp: q, and k and v of a step's own rows, from the fused projection.
#ifndef TANDEM_DECODE_FRESH_GLSL
#define TANDEM_DECODE_FRESH_GLSL

// A vector that a subgroup prepares: q of each head, then k and v of each fresh row, oldest first.
struct FreshVector {
  bool is_q, is_v;
  uint back;      // rows before this one
  uint64_t from;  // float32 [HEAD_DIM]
};
FreshVector fresh_vector(uint item, uint row, uint part, uint kv_head, uint fresh) {
  FreshVector v;
  v.is_q = item < QUERIES;
  v.is_v = !v.is_q && ((item - QUERIES) & 1) != 0;
  v.back = v.is_q ? 0 : fresh - 1 - (item - QUERIES) / 2;
  uint head = v.is_q ? part * QUERIES + item : num_heads + (v.is_v ? num_kv_heads : 0) + kv_head;
  uint total_heads = num_heads + 2 * num_kv_heads;
  v.from = q + (uint64_t(row - v.back) * total_heads + head) * (HEAD_DIM * 4);
  return v;
}
PairInputs load_fresh(FreshVector v, uint position, uint i) {
  return load_pairs(v.from, v.is_q ? q_weight : k_weight, rotation, HEAD_DIM, position - v.back, i);
}

// The first pairs of a subgroup's first vector, to be under way before they are wanted.
PairInputs first_fresh_pairs(uint row, uint part, uint kv_head, uint position, uint fresh) {
  uint item = min(gl_SubgroupID, QUERIES + 2 * fresh - 1);
  return load_fresh(fresh_vector(item, row, part, kv_head, fresh), position,
                    min(gl_SubgroupInvocationID * 4, HEAD_DIM / 2 - 4));
}

// Norms and rotates q and the fresh k, takes over the fresh v; stores the row's own k and v.
// `inputs`: first_fresh_pairs.
void prepare(uint row, uint part, uint kv_head, uint position, uint fresh, uint64_t table,
             uint num_fresh, PairInputs inputs) {
  bool stores = part % (num_heads / num_kv_heads / QUERIES) == 0;
  uint lane = gl_SubgroupInvocationID * 4;
  for (uint item = gl_SubgroupID; item < QUERIES + 2 * num_fresh; item += kSubgroups) {
    FreshVector v = fresh_vector(item, row, part, kv_head, fresh);
    uint at = v.is_q ? item * kQuads : ((item - QUERIES) / 2 + (v.is_v ? kFresh : 0)) * kQuads;
    bool is_stored = !v.is_q && v.back == 0 && stores;
    uint vector = 0;
    if (is_stored) vector = kv_vector(table, position, BLOCK_TOKENS, num_kv_heads, kv_head);
    if (item != gl_SubgroupID) inputs = load_fresh(v, position, min(lane, HEAD_DIM / 2 - 4));
    float factor = 1.0;
    // The lanes hold the vector: v's factor is made too, and not used, for a branch costs more.
    if (LANES * 4 >= HEAD_DIM / 2) {
      float square = lane < HEAD_DIM / 2 ? pairs_square(inputs.x, inputs.y) : 0.0;
      factor = rms_factor(subgroup_sum(square), HEAD_DIM, epsilon);
    } else if (!v.is_v) {
      factor = head_factor(v.from, HEAD_DIM, epsilon);
    }
    for (uint i = lane; i < HEAD_DIM / 2; i += LANES * 4) {
      if (i != lane) inputs = load_fresh(v, position, i);
      RotatedPairs pairs = RotatedPairs(inputs.x, inputs.y);
      if (!v.is_v) pairs = rotate_pairs(inputs, factor);
      if (v.is_q) {
        q_halves[at + i / 4] = halves(pairs.low);
        q_halves[at + i / 4 + kQuads / 2] = halves(pairs.high);
        continue;
      }
      uvec2 a = kv_pack4(KV_FORMAT, pairs.low), b = kv_pack4(KV_FORMAT, pairs.high);
      fresh_quads[at + i / 4] = a;
      fresh_quads[at + i / 4 + kQuads / 2] = b;
      if (!is_stored) continue;
      uint64_t cache = v.is_v ? v_cache : k_cache;
      store_kv4(KV_FORMAT, cache, vector, i, a, BLOCK_TOKENS, HEAD_DIM);
      store_kv4(KV_FORMAT, cache, vector, i + HEAD_DIM / 2, b, BLOCK_TOKENS, HEAD_DIM);
    }
  }
}
#endif
