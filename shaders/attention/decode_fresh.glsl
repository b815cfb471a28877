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
    uint64_t to = 0;
    if (!v.is_q && v.back == 0 && stores) {
      uint vector = kv_vector(table, position, BLOCK_TOKENS, num_kv_heads, kv_head);
      to = (v.is_v ? v_cache : k_cache) + uint64_t(vector) * (HEAD_DIM * 2);
    }
    float factor = v.is_v ? 1.0 : head_factor(v.from, HEAD_DIM, epsilon);
    for (uint i = lane; i < HEAD_DIM / 2; i += LANES * 4) {
      if (item != gl_SubgroupID || i != lane) inputs = load_fresh(v, position, i);
      RotatedPairs pairs = RotatedPairs(inputs.x, inputs.y);
      if (!v.is_v) pairs = rotate_pairs(inputs, factor);
      uvec2 a = halves(pairs.low), b = halves(pairs.high);
      if (v.is_q) {
        q_halves[at + i / 4] = a;
        q_halves[at + i / 4 + kQuads / 2] = b;
      } else {
        fresh_halves[at + i / 4] = a;
        fresh_halves[at + i / 4 + kQuads / 2] = b;
        if (to != 0) {
          Long(to + i * 2).v = pack64(a);
          Long(to + i * 2 + HEAD_DIM).v = pack64(b);
        }
      }
    }
  }
}
#endif
