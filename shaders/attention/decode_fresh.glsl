// decode.comp: q, and k and v of a step's own rows, from the fused projection.
#ifndef TANDEM_DECODE_FRESH_GLSL
#define TANDEM_DECODE_FRESH_GLSL

// Where a head of the projection begins, `back` rows before `row`: float32 [HEAD_DIM].
uint64_t fresh_head(uint row, uint back, uint head) {
  return q + (uint64_t(row - back) * (num_heads + 2 * num_kv_heads) + head) * (HEAD_DIM * 4);
}

// A vector that a subgroup norms and rotates: q of each head, then k of each fresh row, oldest first.
struct FreshVector {
  bool is_q;
  uint back;  // rows before this one
  uint64_t from;
};
FreshVector fresh_vector(uint item, uint row, uint part, uint kv_head, uint fresh) {
  FreshVector v;
  v.is_q = item < QUERIES;
  v.back = v.is_q ? 0 : fresh - 1 - (item - QUERIES);
  v.from = fresh_head(row, v.back, v.is_q ? part * QUERIES + item : num_heads + kv_head);
  return v;
}
PairInputs load_fresh(FreshVector v, uint position, uint i) {
  return load_pairs(v.from, v.is_q ? q_weight : k_weight, rotation, HEAD_DIM, position - v.back, i);
}

// The first pairs of a subgroup's first vector, to be under way before they are wanted.
PairInputs first_fresh_pairs(uint row, uint part, uint kv_head, uint position, uint fresh) {
  uint item = min(gl_SubgroupID, QUERIES + fresh - 1);
  return load_fresh(fresh_vector(item, row, part, kv_head, fresh), position,
                    min(gl_SubgroupInvocationID * 4, HEAD_DIM / 2 - 4));
}

// Norms and rotates q and the fresh k, takes over the fresh v; stores the row's own k and v.
// `inputs`: first_fresh_pairs.
void prepare(uint row, uint part, uint kv_head, uint position, uint fresh, uint64_t table,
             uint num_fresh, PairInputs inputs) {
  bool stores = part % (num_heads / num_kv_heads / QUERIES) == 0;
  // v first: what follows is on its way meanwhile.
  for (uint j = gl_SubgroupID * LANES + gl_SubgroupInvocationID; j < num_fresh * kQuads; j += THREADS) {
    uint back = fresh - 1 - j / kQuads, i = j % kQuads * 4;
    vec4 v = load_head(fresh_head(row, back, num_heads + num_kv_heads + kv_head), i);
    uvec2 bits = kv_pack4(KV_FORMAT, v);
    fresh_quads[kFresh * kQuads + j] = bits;
    if (back != 0 || !stores) continue;
    uint own = kv_vector(table, position, BLOCK_TOKENS, num_kv_heads, kv_head);
    store_kv4(KV_FORMAT, v_cache, own, i, bits, BLOCK_TOKENS, HEAD_DIM);
  }
  uint lane = gl_SubgroupInvocationID * 4;
  for (uint item = gl_SubgroupID; item < QUERIES + num_fresh; item += kSubgroups) {
    FreshVector v = fresh_vector(item, row, part, kv_head, fresh);
    if (item != gl_SubgroupID) inputs = load_fresh(v, position, min(lane, HEAD_DIM / 2 - 4));
    float factor;
    if (LANES * 4 >= HEAD_DIM / 2) {  // the lanes hold the vector
      float square = lane < HEAD_DIM / 2 ? pairs_square(inputs.x, inputs.y) : 0.0;
      factor = rms_factor(subgroup_sum(square), HEAD_DIM, epsilon);
    } else {
      factor = head_factor(v.from, HEAD_DIM, epsilon);
    }
    for (uint i = lane; i < HEAD_DIM / 2; i += LANES * 4) {
      if (i != lane) inputs = load_fresh(v, position, i);
      RotatedPairs pairs = rotate_pairs(inputs, factor);
      if (v.is_q) {
        q_halves[item * kQuads + i / 4] = halves(pairs.low);
        q_halves[item * kQuads + i / 4 + kQuads / 2] = halves(pairs.high);
        continue;
      }
      uint at = (item - QUERIES) * kQuads + i / 4;
      uvec2 a = kv_pack4(KV_FORMAT, pairs.low), b = kv_pack4(KV_FORMAT, pairs.high);
      fresh_quads[at] = a;
      fresh_quads[at + kQuads / 2] = b;
      if (v.back != 0 || !stores) continue;
      uint own = kv_vector(table, position, BLOCK_TOKENS, num_kv_heads, kv_head);
      store_kv4(KV_FORMAT, k_cache, own, i, a, BLOCK_TOKENS, HEAD_DIM);
      store_kv4(KV_FORMAT, k_cache, own, i + HEAD_DIM / 2, b, BLOCK_TOKENS, HEAD_DIM);
    }
  }
}
#endif
