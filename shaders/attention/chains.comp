// Attention (see attention.comp) of chains of guesses: tiles that are all rows of their sequence, few
// enough for 16 (row, head) pairs.  As tiled_quads.comp, but the subgroups of a workgroup share the
// positions, not the pairs: each takes 16 of POSITIONS at a time, and the subgroups' sums are put
// together at the end.
//
// q, k and v come from the fused projection, normed and rotated here.  k and v of the rows are not in
// the cache yet: they are taken from the projection, and stored.
//
// x: KV head and part of its query heads, y: tile.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention_step.glsl"
#include "kv_cache.glsl"
#include "memory.glsl"
#include "rotate.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128;  // 32 for each subgroup
layout(constant_id = 3) const uint HEAD_DIM = 64;  // 64 or 128
layout(constant_id = 4) const uint QUERIES = 1;    // 1 or 2
layout(constant_id = 5) const uint MOST_ROWS = 8;  // of a tile; MOST_ROWS * QUERIES: at most 16
layout(constant_id = 8) const uint BLOCK_TOKENS = 16;
layout(constant_id = 12) const uint FORMAT = 1;  // of the result
layout(constant_id = 13) const uint KV_FORMAT = 0;
#include "push/chains.glsl"

const uint SUBGROUPS = THREADS / 32;
const uint POSITIONS = 16 * SUBGROUPS;
const uint kChunks = HEAD_DIM / 8;
const uint kSteps = HEAD_DIM / 16;
const uint kVectorLanes = HEAD_DIM / 8;
const uint kStride = kChunks + 1;  // of a vector in shared memory; one against conflicts
const uint kStaged = POSITIONS * kChunks;  // chunks of K, or of V
const uint kLoads = kStaged / THREADS;
const uint kValues = POSITIONS * kStride;         // K, then V
const uint kSumStride = 2 * kChunks + 1;          // of a pair's float32 sums
const uint kSums = 16 * SUBGROUPS * kSumStride;   // in place of K and V at the end
const uint kVectors = MOST_ROWS * (QUERIES + 2);  // of the rows: q, k, v
const float kLowest = -1e30;
const float kLog2E = 1.44269504088896;

shared uvec4 shared_words[2 * kValues > kSums ? 2 * kValues : kSums];
shared uvec4 own_words[kVectors * kStride];  // q [row, QUERIES], k [MOST_ROWS], v [MOST_ROWS]: float16
shared vec2 totals[16 * SUBGROUPS];          // of each pair: max, sum of the weights
#include "../linear/coop.glsl"
#include "quads.glsl"
#include "tiled_store.glsl"

vec4 load_head(uint64_t from, uint i) { return load_vec4(from + i * 4); }
vec4 load_head_weight(uint64_t weight, uint i) { return load_vec4(weight + i * 4); }
vec4 load_rotation(uint64_t table, uint i) { return load_vec4(table + uint64_t(i) * 4); }

uvec4 next_k[kLoads], next_v[kLoads];  // chunks on their way

// Of the chunks of [base, base + POSITIONS) this thread's; reads always hit the cache.
void load_positions(uint64_t table, uint base, uint first, uint last, uint kv_head) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    uint item = gl_LocalInvocationIndex + i * THREADS;
    uint position = clamp(base + item / kChunks, first, last);
    uint vector = kv_vector(table, position, BLOCK_TOKENS, num_kv_heads, kv_head);
    next_k[i] = load_kv_chunk(KV_FORMAT, k_cache, vector, item % kChunks, BLOCK_TOKENS, HEAD_DIM);
    next_v[i] = load_kv_chunk(KV_FORMAT, v_cache, vector, item % kChunks, BLOCK_TOKENS, HEAD_DIM);
  }
}
// From first_own on, positions are the tile's own.
void stage_positions(uint base, uint last, uint first_own) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    uint item = gl_LocalInvocationIndex + i * THREADS;
    uint at = item / kChunks * kStride + item % kChunks;
    shared_words[at] = kv_halves(KV_FORMAT, next_k[i]);
    shared_words[at + kValues] = kv_halves(KV_FORMAT, next_v[i]);
  }
  if (base + POSITIONS <= first_own) return;
  for (uint item = gl_LocalInvocationIndex; item < kStaged; item += THREADS) {
    uint position = min(base + item / kChunks, last);
    if (position < first_own) continue;
    uint at = item / kChunks * kStride + item % kChunks;
    uint from = (MOST_ROWS * QUERIES + position - first_own) * kStride + item % kChunks;
    shared_words[at] = own_words[from];
    shared_words[at + kValues] = own_words[from + MOST_ROWS * kStride];
  }
}

// Puts four float16 at element i, a multiple of four, of a vector.
void put_own(uint vector, uint i, uvec2 bits) {
  uint at = vector * kStride + i / 8;
  own_words[at][i / 4 % 2 * 2] = bits.x;
  own_words[at][i / 4 % 2 * 2 + 1] = bits.y;
}

// A vector that kVectorLanes lanes make.
struct OwnVector {
  bool is_q, is_v;
  uint row;       // of the tile
  uint64_t from;  // float32 [HEAD_DIM]
  uint to;        // vector of own_words
};
OwnVector own_vector(uint item, AttentionTile tile, uint first_head, uint kv_head) {
  OwnVector v;
  v.row = item / (QUERIES + 2);
  uint h = item % (QUERIES + 2);
  v.is_q = h < QUERIES;
  v.is_v = h == QUERIES + 1;
  uint head = v.is_q ? first_head + h : num_heads + (v.is_v ? num_kv_heads : 0) + kv_head;
  uint64_t row = tile.first_row + v.row;
  v.from = q + (row * (num_heads + 2 * num_kv_heads) + head) * (HEAD_DIM * 4);
  v.to = v.is_q ? v.row * QUERIES + h : MOST_ROWS * (QUERIES + (v.is_v ? 1 : 0)) + v.row;
  return v;
}

// Of float32 [HEAD_DIM], from what a lane has of it.
float factor_of(PairInputs inputs, uint64_t from) {
#ifdef EMULATED  // subgroups may be smaller than kVectorLanes
  float square = 0.0;
  for (uint i = 0; i < HEAD_DIM / 2; i += 4) {
    square += pairs_square(load_head(from, i), load_head(from, i + HEAD_DIM / 2));
  }
#else
  float square = pairs_square(inputs.x, inputs.y);
  square += subgroupShuffleXor(square, 1);
  square += subgroupShuffleXor(square, 2);
  square += subgroupShuffleXor(square, 4);
  if (kVectorLanes > 8) square += subgroupShuffleXor(square, 8);
#endif
  return rms_factor(square, HEAD_DIM, epsilon);
}

// Makes q, k and v of the tile's rows, AT_ONCE vectors of kVectorLanes lanes after one another's loads.
void prepare(AttentionTile tile, uint first_position, uint first_head, uint kv_head,
             uint64_t table) {
  const uint AT_ONCE = 2, kSlots = THREADS / kVectorLanes;
  bool stores = first_head % (num_heads / num_kv_heads) == 0;  // the KV head's first workgroup
  uint i = gl_LocalInvocationIndex % kVectorLanes * 4;
  uint num = tile.num_rows * (QUERIES + 2);
  for (uint item = gl_LocalInvocationIndex / kVectorLanes; item < num; item += AT_ONCE * kSlots) {
    PairInputs inputs[AT_ONCE];
    [[unroll]] for (uint a = 0; a < AT_ONCE; ++a) {
      OwnVector v = own_vector(min(item + a * kSlots, num - 1), tile, first_head, kv_head);
      inputs[a] = load_pairs(v.from, v.is_q ? q_weight : k_weight, rotation, HEAD_DIM,
                             first_position + v.row, i);
    }
    [[unroll]] for (uint a = 0; a < AT_ONCE; ++a) {
      if (item + a * kSlots >= num) break;
      OwnVector v = own_vector(item + a * kSlots, tile, first_head, kv_head);
      float factor = factor_of(inputs[a], v.from);
      RotatedPairs pairs = RotatedPairs(inputs[a].x, inputs[a].y);
      if (!v.is_v) pairs = rotate_pairs(inputs[a], factor);
      if (v.is_q) {
        put_own(v.to, i, kv_pack4(kKvF16, pairs.low));
        put_own(v.to, i + HEAD_DIM / 2, kv_pack4(kKvF16, pairs.high));
        continue;
      }
      uvec2 low = kv_pack4(KV_FORMAT, pairs.low), high = kv_pack4(KV_FORMAT, pairs.high);
      put_own(v.to, i, kv_halves4(KV_FORMAT, low));
      put_own(v.to, i + HEAD_DIM / 2, kv_halves4(KV_FORMAT, high));
      if (!stores) continue;
      uint vector =
          kv_vector(table, first_position + v.row, BLOCK_TOKENS, num_kv_heads, kv_head);
      uint64_t cache = v.is_v ? v_cache : k_cache;
      store_kv4(KV_FORMAT, cache, vector, i, low, BLOCK_TOKENS, HEAD_DIM);
      store_kv4(KV_FORMAT, cache, vector, i + HEAD_DIM / 2, high, BLOCK_TOKENS, HEAD_DIM);
    }
  }
}

void main() {
  AttentionTile tile = attention_tile(tiles, gl_WorkGroupID.y);
  if (tile.num_rows == 0) return;
  AttentionRow start = attention_row(rows, tile.first_row);
  uint kv_head = gl_WorkGroupID.x / (num_heads / num_kv_heads / QUERIES);
  uint first_head = gl_WorkGroupID.x * QUERIES;
  uint64_t table = step + start.tables[group];
  uint last = start.position + tile.num_rows - 1;
  uint first = first_seen(tile, start.position, window);
  uint base = first / POSITIONS * POSITIONS;
  load_positions(table, base, first, last, kv_head);
  prepare(tile, start.position, first_head, kv_head, table);
  barrier();

  // The lane's two pairs: what they see, and their q.
  uint own_first[2], own_last[2], q_at[2];
  [[unroll]] for (uint h = 0; h < 2; ++h) {
    uint pair = lane_row() + 8 * h, row = min(pair / QUERIES, tile.num_rows - 1);
    own_last[h] = start.position + row;
    own_first[h] = first_seen(tile, start.position + row, window);
    q_at[h] = (row * QUERIES + pair % QUERIES) * kStride;
  }
  MatrixA queries[kSteps];
  UNROLL_MATRICES for (uint k = 0; k < kSteps; ++k) {
    f16vec2 of_lane[LANE_PAIRS];
    [[unroll]] for (uint p = 0; p < LANE_PAIRS; ++p) {
      of_lane[p] = unpackFloat2x16(own_words[q_at[p / 2] + 2 * k + p % 2][lane_quarter()]);
    }
    queries[k] = make_a(of_lane);
  }
  // What all pairs see.
  uint all_first = first_seen(tile, last, window), all_last = start.position;

  float highest[2] = {kLowest, kLowest}, weight_sum[2] = {0.0, 0.0};
  MatrixC sums[kSteps];
  [[unroll]] for (uint k = 0; k < kSteps; ++k) sums[k] = ZERO_C;
  const float factor = scale * kLog2E;
  uint k_at = subgroup_id() * 16 * kStride, v_at = k_at + kValues;
  for (;;) {
    stage_positions(base, last, start.position);
    barrier();
    load_positions(table, base + POSITIONS, first, last, kv_head);

    MatrixC score = ZERO_C;
    UNROLL_MATRICES for (uint k = 0; k < kSteps; ++k) {
      MatrixB b;
      LOAD_B(b, k_at + 2 * k, kStride);
      MULTIPLY_ADD(queries[k], b, score);
    }
    if (base < all_first || base + POSITIONS > all_last + 1) {  // some see less
      [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
        uint h = sum_half(e), position = base + subgroup_id() * 16 + sum_column(e);
        bool seen = position >= own_first[h] && position <= own_last[h];
        if (!seen) C_ELEMENT(score, e) = uintBitsToFloat(0xFF800000u);
      }
    }
    float higher[2] = highest, shrink[2];
    [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
      higher[sum_half(e)] = max(higher[sum_half(e)], C_ELEMENT(score, e));
    }
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      higher[h] = quad_max(higher[h]);
      shrink[h] = exp2((highest[h] - higher[h]) * factor);
      highest[h] = higher[h];
      weight_sum[h] *= shrink[h];
    }
    f16vec2 of_lane[LANE_PAIRS];  // pair (half h of the rows, half c of the columns) at 2 h + c
    [[unroll]] for (uint e = 0; e < C_ELEMENTS; e += 2) {
      uint h = sum_half(e);
      vec2 w = exp2(vec2(C_ELEMENT(score, e), C_ELEMENT(score, e + 1)) * factor -
                    vec2(higher[h] * factor));
      weight_sum[h] += w.x + w.y;
      of_lane[2 * h + sum_column_half(e)] = f16vec2(w);
    }
    MatrixA weights = make_a(of_lane);
    UNROLL_MATRICES for (uint k = 0; k < kSteps; ++k) {
      MatrixC sum = sums[k];
      [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
        C_ELEMENT(sum, e) = C_ELEMENT(sum, e) * shrink[sum_half(e)];
      }
      MatrixB b;
      LOAD_B_ROWS(b, v_at + 2 * k, kStride);
      MULTIPLY_ADD(weights, b, sum);
      sums[k] = sum;
    }
    barrier();
    base += POSITIONS;
    if (base > last) break;
  }

  // Put the subgroups' sums together.
  uint sums_at = subgroup_id() * 16 * kSumStride;
  UNROLL_MATRICES for (uint k = 0; k < kSteps; ++k) {
    STORE_C_ROWS(sums[k], sums_at + 4 * k, kSumStride);
  }
  [[unroll]] for (uint h = 0; h < 2; ++h) {
    float total = quad_sum(weight_sum[h]);
    if (lane_quarter() == 0) {
      totals[subgroup_id() * 16 + lane_row() + 8 * h] = vec2(highest[h], total);
    }
  }
  barrier();
  const uint kUnits = HEAD_DIM / 32;
  for (uint unit = gl_LocalInvocationIndex / 2; unit < 16 * kUnits; unit += THREADS / 2) {
    uint pair = unit / kUnits, column = unit % kUnits * 32, half_of = gl_LocalInvocationIndex & 1;
    float top = kLowest, total = 0.0;
    [[unroll]] for (uint s = 0; s < SUBGROUPS; ++s) top = max(top, totals[s * 16 + pair].x);
    HalfRow half_row[2];
    [[unroll]] for (uint e = 0; e < 16; ++e) half_row[e / 8].e[e % 8] = 0.0;
    [[unroll]] for (uint s = 0; s < SUBGROUPS; ++s) {
      vec2 own = totals[s * 16 + pair];
      float weight = exp2((own.x - top) * factor);
      total += weight * own.y;
      uint at = (s * 16 + pair) * kSumStride + column / 4 + half_of * 2;
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        vec4 x = uintBitsToFloat(shared_words[at + i / 2 * 4 + i % 2]);
        [[unroll]] for (uint e = 0; e < 4; ++e) half_row[i / 2].e[i % 2 * 4 + e] += weight * x[e];
      }
    }
    float inverse = 1.0 / total;
    [[unroll]] for (uint e = 0; e < 16; ++e) half_row[e / 8].e[e % 8] *= inverse;
    uint row = pair / QUERIES;
    uint64_t to = activation_row(destination, FORMAT, num_heads * HEAD_DIM, tile.first_row + row);
    store_columns(to, (first_head + pair % QUERIES) * HEAD_DIM + column, half_of, half_row,
                  row < tile.num_rows);
  }
}
