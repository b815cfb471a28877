// As tiled.comp (Dao 2023, "FlashAttention-2"), on matrix units where lanes g and g + 16 hold row g of
// a left matrix and column g of the sums: coop.glsl, layout 2; RDNA 3.  Scores are K by q, not q by K.
// So two lanes have all positions of one query row: one lane has the even positions, the other the odd
// ones.  One exchange between the two makes a left matrix of the weights.
//
// PARTS subgroups share 16 (row, head) pairs.  Each has a part of the head's dimensions and keeps q and
// sums of that part in registers.  The parts' scores are added up through shared memory.  K and V go
// through shared memory, POSITIONS at a time.  V is transposed on the way: 16 positions of a dimension
// are neighbours.
//
// x: KV head and part of its query heads, y: tile.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention_step.glsl"
#include "kv_cache.glsl"
#include "memory.glsl"
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128;
layout(constant_id = 3) const uint HEAD_DIM = 64;   // a multiple of 8
layout(constant_id = 4) const uint QUERIES = 1;     // divides 16
layout(constant_id = 5) const uint POSITIONS = 32;  // a multiple of 16
layout(constant_id = 6) const uint PARTS = 1;       // 1 or 2
layout(constant_id = 7) const uint AHEAD = 1;       // 1: the next positions are read ahead
layout(constant_id = 8) const uint BLOCK_TOKENS = 16;
layout(constant_id = 12) const uint FORMAT = 1;  // of the result; int8: HEAD_DIM a multiple of 32
layout(constant_id = 13) const uint KV_FORMAT = 0;
#include "push/tiled.glsl"

const uint SUBGROUPS = THREADS / 32;
const uint kChunks = HEAD_DIM / 8;
// Of 16 dimensions, the last filled up with zeros; of two parts each has whole blocks of 32.
const uint kPartSteps = PARTS == 1 ? (HEAD_DIM + 15) / 16 : (HEAD_DIM + 63) / 64 * 2;
const uint kSteps = kPartSteps * PARTS;
const uint kBlocks = POSITIONS / 16;
const uint kItems = POSITIONS * kSteps;  // a chunk of two positions each
const uint kLoads = (kItems + THREADS - 1) / THREADS;
// Shared memory, in uvec4: K by position; V by dimension; scores by subgroup.  The strides keep 16
// rows, and a subgroup's stores, in different banks.
const uint kStride = 2 * kSteps + 1;
const uint kTurnedStride = POSITIONS / 8 + 1;
const uint kTurnedStep = 16 * kTurnedStride + 2;
const uint kValues = POSITIONS * kStride;
const uint kScores = kValues + kSteps * kTurnedStep;
const uint kAll = kScores + (PARTS == 1 ? 0 : SUBGROUPS * kBlocks * 64);
// At the start q of one step, at the end 16 float32 of each row; both of every subgroup.
const uint kQueryStride = 3, kStoreStride = 5;
const uint kEnds = SUBGROUPS * 16 * kStoreStride;
const float kLowest = -1e30;
const float kLog2E = 1.44269504088896;

shared uvec4 shared_words[kAll > kEnds ? kAll : kEnds];
#define HELD_B
#include "../linear/coop.glsl"
#include "tiled_store.glsl"

#ifdef EMULATED  // subgroups may be smaller than 32
shared uint lane_words[THREADS];
uint word_of(uint x, uint lane) {
  barrier();
  lane_words[gl_LocalInvocationIndex] = x;
  barrier();
  return lane_words[subgroup_id() * 32 + lane];
}
uint word_across(uint x) { return word_of(x, lane_id() ^ 16); }
bool all_lanes(bool x) { return false; }
#else
uint word_of(uint x, uint lane) { return subgroupShuffle(x, lane); }
uint word_across(uint x) { return subgroupShuffleXor(x, 16); }
bool all_lanes(bool x) { return subgroupAll(x); }
#endif
float value_of(float x, uint lane) { return uintBitsToFloat(word_of(floatBitsToUint(x), lane)); }
float value_across(float x) { return uintBitsToFloat(word_across(floatBitsToUint(x))); }

uvec4 next_k[2 * kLoads], next_v[2 * kLoads];  // chunks on their way

// Item: a chunk of eight dimensions of positions 2 p and 2 p + 1.  Four values of p are neighbours.
uint item_pair(uint item) { return item / (8 * kSteps) * 4 + item % 4; }
uint item_chunk(uint item) { return item / 4 % (2 * kSteps); }

// Loads this thread's chunks of [base, base + POSITIONS); positions beyond the tile's are clamped.
void load_positions(uint64_t table, uint base, uint first, uint last, uint kv_head) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    uint item = min(gl_LocalInvocationIndex + i * THREADS, kItems - 1);
    uint chunk = item_chunk(item);
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      uint position = clamp(base + 2 * item_pair(item) + j, first, last);
      uint vector = kv_vector(table, position, BLOCK_TOKENS, num_kv_heads, kv_head);
      next_k[2 * i + j] = next_v[2 * i + j] = uvec4(0);
      if (kChunks == 2 * kSteps || chunk < kChunks) {
        next_k[2 * i + j] =
            load_kv_chunk(KV_FORMAT, k_cache, vector, chunk, BLOCK_TOKENS, HEAD_DIM);
        next_v[2 * i + j] =
            load_kv_chunk(KV_FORMAT, v_cache, vector, chunk, BLOCK_TOKENS, HEAD_DIM);
      }
    }
  }
}
void stage_positions() {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    uint item = gl_LocalInvocationIndex + i * THREADS;
    if (kItems % THREADS != 0 && item >= kItems) return;
    uint pair = item_pair(item), chunk = item_chunk(item);
    shared_words[2 * pair * kStride + chunk] = kv_halves(KV_FORMAT, next_k[2 * i]);
    shared_words[(2 * pair + 1) * kStride + chunk] = kv_halves(KV_FORMAT, next_k[2 * i + 1]);
    uvec4 x = kv_halves(KV_FORMAT, next_v[2 * i]), y = kv_halves(KV_FORMAT, next_v[2 * i + 1]);
    uint at = kValues + chunk / 2 * kTurnedStep + chunk % 2 * 8 * kTurnedStride + pair / 4;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      shared_words[at + 2 * j * kTurnedStride][pair % 4] = (x[j] & 0xFFFFu) | (y[j] << 16);
      shared_words[at + (2 * j + 1) * kTurnedStride][pair % 4] =
          (x[j] >> 16) | (y[j] & 0xFFFF0000u);
    }
  }
}

// The left matrix; `low`, `high`: the 16 columns of the lane's row.
MatrixA row_matrix(uvec4 low, uvec4 high) {
  f16vec2 pair[LANE_PAIRS];
  [[unroll]] for (uint u = 0; u < 4; ++u) {
    pair[2 * u] = unpackFloat2x16(low[u]);
    pair[2 * u + 1] = unpackFloat2x16(high[u]);
  }
  return make_a(pair);
}

void main() {
  AttentionTile tile = attention_tile(tiles, gl_WorkGroupID.y);
  if (tile.num_rows == 0) return;
  AttentionRow start = attention_row(rows, tile.first_row);
  uint kv_head = gl_WorkGroupID.x / (num_heads / num_kv_heads / QUERIES);
  uint first_head = gl_WorkGroupID.x * QUERIES;
  uint64_t table = step + start.tables[group];
  uint last = last_seen(tile, start.position + tile.num_rows - 1);
  uint first = first_seen(tile, start.position, window);
  uint base = first / POSITIONS * POSITIONS;
  uint team_pair = subgroup_id() / PARTS * 16;  // the first of the team's
  uint part = subgroup_id() % PARTS, part_step = part * kPartSteps;
  uint lane_half = lane_id() / 16;

  // q of the lane's pair, eight dimensions of each step, and the positions that the pair sees.
  uint row = min((team_pair + lane_row()) / QUERIES, tile.num_rows - 1);
  uint own_last = last_seen(tile, start.position + row);
  uint own_first = first_seen(tile, start.position + row, window);
  uint64_t head = uint64_t(tile.first_row + row) * num_heads + first_head +
                  (team_pair + lane_row()) % QUERIES;
  uvec4 of_lane[kPartSteps];
  [[unroll]] for (uint k = 0; k < kPartSteps; ++k) {
    uint chunk = 2 * (part_step + k) + lane_half;
    of_lane[k] = uvec4(0);
    if (kChunks == 2 * kSteps || chunk < kChunks) {
      of_lane[k] = load_uvec4(q + head * (HEAD_DIM * 2) + chunk * 16);
    }
  }
  MatrixB queries[kPartSteps];
  uint query_at = subgroup_id() * 16 * kQueryStride;
  UNROLL_MATRICES for (uint k = 0; k < kPartSteps; ++k) {
    SUBGROUP_SYNC();
    shared_words[query_at + lane_row() * kQueryStride + lane_half] = of_lane[k];
    SUBGROUP_SYNC();
    LOAD_B(queries[k], query_at, kQueryStride);
  }
  // What all pairs of the team see.
  uint team_first = start.position + min(team_pair / QUERIES, tile.num_rows - 1);
  uint team_last = start.position + min((team_pair + 15) / QUERIES, tile.num_rows - 1);
  uint all_first = first_seen(tile, team_last, window), all_last = last_seen(tile, team_first);

  float highest = kLowest, weight_sum = 0.0;
  MatrixC sums[kPartSteps];
  [[unroll]] for (uint k = 0; k < kPartSteps; ++k) sums[k] = ZERO_C;
  const float factor = scale * kLog2E;
  if (AHEAD != 0) load_positions(table, base, first, last, kv_head);
  for (; base <= last; base += POSITIONS) {
    if (AHEAD == 0) load_positions(table, base, first, last, kv_head);
    barrier();
    stage_positions();
    barrier();
    if (AHEAD != 0) load_positions(table, base + POSITIONS, first, last, kv_head);

    MatrixC score[kBlocks];
    [[unroll]] for (uint n = 0; n < kBlocks; ++n) score[n] = ZERO_C;
    UNROLL_MATRICES for (uint k = 0; k < kPartSteps; ++k) {
      UNROLL_MATRICES for (uint n = 0; n < kBlocks; ++n) {
        uint at = (n * 16 + lane_row()) * kStride + 2 * (part_step + k);
        MatrixA a = row_matrix(shared_words[at], shared_words[at + 1]);
        MULTIPLY_ADD(a, queries[k], score[n]);
      }
    }
    if (PARTS > 1) {
      uint own = kScores + subgroup_id() * kBlocks * 64 + lane_id();
      uint other = kScores + (subgroup_id() ^ 1) * kBlocks * 64 + lane_id();
      [[unroll]] for (uint i = 0; i < 2 * kBlocks; ++i) {
        vec4 x;
        [[unroll]] for (uint e = 0; e < 4; ++e) x[e] = C_ELEMENT(score[i / 2], i % 2 * 4 + e);
        shared_words[own + i * 32] = floatBitsToUint(x);
      }
      barrier();
      [[unroll]] for (uint i = 0; i < 2 * kBlocks; ++i) {
        vec4 x = uintBitsToFloat(shared_words[other + i * 32]);
        [[unroll]] for (uint e = 0; e < 4; ++e) {
          uint of = i % 2 * 4 + e;
          C_ELEMENT(score[i / 2], of) = C_ELEMENT(score[i / 2], of) + x[e];
        }
      }
    }
    if (base < all_first || base + POSITIONS > all_last + 1) {  // some see less
      [[unroll]] for (uint n = 0; n < kBlocks; ++n) {
        [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
          uint position = base + n * 16 + sum_row(e);
          bool seen = position >= own_first && position <= own_last;
          if (!seen) C_ELEMENT(score[n], e) = uintBitsToFloat(0xFF800000u);
        }
      }
    }
    float higher = highest;
    [[unroll]] for (uint n = 0; n < kBlocks; ++n) {
      [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
        higher = max(higher, C_ELEMENT(score[n], e));
      }
    }
    higher = max(higher, value_across(higher));
    float shrink = exp2((highest - higher) * factor);
    highest = higher;
    weight_sum *= shrink;
    if (!all_lanes(shrink == 1.0)) {
      float shrinks[C_ELEMENTS];
      [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) shrinks[e] = value_of(shrink, sum_row(e));
      [[unroll]] for (uint k = 0; k < kPartSteps; ++k) {
        [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
          C_ELEMENT(sums[k], e) = C_ELEMENT(sums[k], e) * shrinks[e];
        }
      }
    }
    UNROLL_MATRICES for (uint n = 0; n < kBlocks; ++n) {
      uvec4 own, even, odd;  // word i: positions 4 i and 4 i + 2, or one further
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        vec2 w = exp2(vec2(C_ELEMENT(score[n], 2 * i), C_ELEMENT(score[n], 2 * i + 1)) * factor -
                      vec2(higher * factor));
        weight_sum += w.x + w.y;
        own[i] = packFloat2x16(f16vec2(w));
      }
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        uint other = word_across(own[i]);
        even[i] = lane_half == 0 ? own[i] : other;
        odd[i] = lane_half == 0 ? other : own[i];
      }
      uvec4 first_of = (even & 0xFFFFu) | (odd << 16), second_of = (even >> 16) | (odd & 0xFFFF0000u);
      MatrixA a = row_matrix(uvec4(first_of.x, second_of.x, first_of.y, second_of.y),
                             uvec4(first_of.z, second_of.z, first_of.w, second_of.w));
      UNROLL_MATRICES for (uint k = 0; k < kPartSteps; ++k) {
        MatrixB b;
        LOAD_B(b, kValues + (part_step + k) * kTurnedStep + 2 * n, kTurnedStride);
        MULTIPLY_ADD(a, b, sums[k]);
      }
    }
  }

  // Rows come out of shared memory half by half, as store_columns takes them.
  barrier();
  float inverse = 1.0 / (weight_sum + value_across(weight_sum));
  float row_factor = value_of(inverse, lane_id() / 2);
  uint at = subgroup_id() * 16 * kStoreStride, half_of = lane_id() & 1;
  uint pair = team_pair + lane_id() / 2;
  uint64_t to =
      activation_row(destination, FORMAT, num_heads * HEAD_DIM, tile.first_row + pair / QUERIES);
  UNROLL_MATRICES for (uint k = 0; k < kPartSteps; k += 2) {
    HalfRow half_row[2];
    UNROLL_MATRICES for (uint b = 0; b < 2; ++b) {
      SUBGROUP_SYNC();
      STORE_C_ROWS(sums[min(k + b, kPartSteps - 1)], at, kStoreStride);
      SUBGROUP_SYNC();
      [[unroll]] for (uint e = 0; e < 8; ++e) {
        uint word = at + lane_id() / 2 * kStoreStride + half_of * 2 + e / 4;
        half_row[b].e[e] = uintBitsToFloat(shared_words[word][e % 4]) * row_factor;
      }
    }
    uint dim = (part_step + k) * 16;  // zeros follow the head's last
    bool is_there = pair / QUERIES < tile.num_rows && dim < HEAD_DIM;
    uint column = (first_head + pair % QUERIES) * HEAD_DIM + min(dim, HEAD_DIM - 8);
    store_columns(to, column, half_of, half_row, is_there);
  }
}
