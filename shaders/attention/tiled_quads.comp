// As tiled.comp, on matrix units whose left matrices and sums lanes hold in quads (coop.glsl, layout
// 1): weights become left matrices where they are, in registers (Dao 2023, "FlashAttention-2").
//
// A subgroup of 32 has 16 (row, head) pairs, whose q and sums stay in registers.  K and V go through
// shared memory, POSITIONS at a time, twice: one is read while the next arrives.  A lane has a fourth
// of the columns of two pairs; their maxima and sums go over the four lanes that share them.
//
// x: KV head and part of its query heads, y: tile.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention_step.glsl"
#include "kv_cache.glsl"
#include "memory.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128;
layout(constant_id = 3) const uint HEAD_DIM = 64;   // a multiple of 8
layout(constant_id = 4) const uint QUERIES = 1;     // divides 16
layout(constant_id = 5) const uint POSITIONS = 32;  // a multiple of 16
layout(constant_id = 8) const uint BLOCK_TOKENS = 16;
layout(constant_id = 12) const uint FORMAT = 1;  // of the result; int8: HEAD_DIM a multiple of 32
layout(constant_id = 13) const uint KV_FORMAT = 0;
#include "push/tiled.glsl"

const uint SUBGROUPS = THREADS / 32;
const uint kChunks = HEAD_DIM / 8;
const uint kSteps = (HEAD_DIM + 15) / 16;  // of 16 dimensions, the last filled up with zeros
const uint kStride = 2 * kSteps + 1;       // of a vector in shared memory; one against conflicts
const uint kBlocks = POSITIONS / 16;
const uint kStaged = POSITIONS * 2 * kSteps;  // chunks of K, or of V
const uint kLoads = (kStaged + THREADS - 1) / THREADS;
const uint kHalf = POSITIONS * kStride;  // K, then V
const uint kStoreStride = 5;             // of 16 float32 on their way out
const float kLowest = -1e30;
const float kLog2E = 1.44269504088896;

shared uvec4 shared_words[4 * kHalf > SUBGROUPS * 16 * kStoreStride ? 4 * kHalf
                                                                   : SUBGROUPS * 16 * kStoreStride];
#include "../linear/coop.glsl"
#include "quads.glsl"
#include "tiled_store.glsl"

uvec4 next_k[kLoads], next_v[kLoads];  // chunks on their way

// Of the chunks of [base, base + POSITIONS) this thread's; reads always hit the cache.
void load_positions(uint64_t table, uint base, uint first, uint last, uint kv_head) {
  uint vector[kLoads];
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    uint item = min(gl_LocalInvocationIndex + i * THREADS, kStaged - 1);
    uint position = clamp(base + item / (2 * kSteps), first, last);
    vector[i] = kv_vector(table, position, BLOCK_TOKENS, num_kv_heads, kv_head);
  }
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    uint chunk = min(gl_LocalInvocationIndex + i * THREADS, kStaged - 1) % (2 * kSteps);
    if (kChunks != 2 * kSteps && chunk >= kChunks) {
      next_k[i] = next_v[i] = uvec4(0);
      continue;
    }
    next_k[i] = load_kv_chunk(KV_FORMAT, k_cache, vector[i], chunk, BLOCK_TOKENS, HEAD_DIM);
    next_v[i] = load_kv_chunk(KV_FORMAT, v_cache, vector[i], chunk, BLOCK_TOKENS, HEAD_DIM);
  }
}
void stage_positions(uint turn) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    uint item = gl_LocalInvocationIndex + i * THREADS;
    if (kStaged % THREADS != 0 && item >= kStaged) return;
    uint at = turn * 2 * kHalf + item / (2 * kSteps) * kStride + item % (2 * kSteps);
    shared_words[at] = kv_halves(KV_FORMAT, next_k[i]);
    shared_words[at + kHalf] = kv_halves(KV_FORMAT, next_v[i]);
  }
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
  load_positions(table, base, first, last, kv_head);

  // The lane's two pairs: what they see, and their q.
  uint own_first[2], own_last[2];
  MatrixA queries[kSteps];
  uint64_t q_at[2];
  [[unroll]] for (uint h = 0; h < 2; ++h) {
    uint pair = subgroup_id() * 16 + lane_row() + 8 * h;
    uint row = min(pair / QUERIES, tile.num_rows - 1);
    own_last[h] = last_seen(tile, start.position + row);
    own_first[h] = first_seen(tile, start.position + row, window);
    uint64_t head = uint64_t(tile.first_row + row) * num_heads + first_head + pair % QUERIES;
    q_at[h] = q + head * (HEAD_DIM * 2) + lane_quarter() * 4;
  }
  UNROLL_MATRICES for (uint k = 0; k < kSteps; ++k) {
    f16vec2 of_lane[LANE_PAIRS];
    [[unroll]] for (uint p = 0; p < LANE_PAIRS; ++p) {
      bool is_there = 2 * k + p % 2 < kChunks;
      uint words = is_there ? load_uint(q_at[p / 2] + uint64_t(k * 32 + p % 2 * 16)) : 0;
      of_lane[p] = unpackFloat2x16(words);
    }
    queries[k] = make_a(of_lane);
  }
  // What all pairs of the subgroup see, and any.
  uint team_first = start.position + min(subgroup_id() * 16 / QUERIES, tile.num_rows - 1);
  uint team_last = start.position + min((subgroup_id() * 16 + 15) / QUERIES, tile.num_rows - 1);
  uint all_first = first_seen(tile, team_last, window), all_last = last_seen(tile, team_first);

  float highest[2] = {kLowest, kLowest}, weight_sum[2] = {0.0, 0.0};
  MatrixC sums[kSteps];
  [[unroll]] for (uint k = 0; k < kSteps; ++k) sums[k] = ZERO_C;
  const float factor = scale * kLog2E;
  uint turn = 0;
  stage_positions(0);
  barrier();
  for (; base <= last; base += POSITIONS) {
    load_positions(table, base + POSITIONS, first, last, kv_head);
    uint k_at = turn * 2 * kHalf, v_at = k_at + kHalf;

    MatrixC score[kBlocks];
    [[unroll]] for (uint n = 0; n < kBlocks; ++n) score[n] = ZERO_C;
    UNROLL_MATRICES for (uint k = 0; k < kSteps; ++k) {
      UNROLL_MATRICES for (uint n = 0; n < kBlocks; ++n) {
        MatrixB b;
        LOAD_B(b, k_at + n * 16 * kStride + 2 * k, kStride);
        MULTIPLY_ADD(queries[k], b, score[n]);
      }
    }
    if (base < all_first || base + POSITIONS > all_last + 1) {  // some see less
      [[unroll]] for (uint n = 0; n < kBlocks; ++n) {
        [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
          uint h = sum_half(e), position = base + n * 16 + sum_column(e);
          bool seen = position >= own_first[h] && position <= own_last[h];
          if (!seen) C_ELEMENT(score[n], e) = uintBitsToFloat(0xFF800000u);
        }
      }
    }
    float higher[2] = highest, shrink[2];
    [[unroll]] for (uint n = 0; n < kBlocks; ++n) {
      [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
        higher[sum_half(e)] = max(higher[sum_half(e)], C_ELEMENT(score[n], e));
      }
    }
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      higher[h] = quad_max(higher[h]);
      shrink[h] = exp2((highest[h] - higher[h]) * factor);
      highest[h] = higher[h];
      weight_sum[h] *= shrink[h];
    }
    MatrixA weights[kBlocks];
    UNROLL_MATRICES for (uint n = 0; n < kBlocks; ++n) {
      f16vec2 of_lane[LANE_PAIRS];  // pair (half h of the rows, half c of the columns) at 2 h + c
      [[unroll]] for (uint e = 0; e < C_ELEMENTS; e += 2) {
        uint h = sum_half(e);
        vec2 w = exp2(vec2(C_ELEMENT(score[n], e), C_ELEMENT(score[n], e + 1)) * factor -
                      vec2(higher[h] * factor));
        weight_sum[h] += w.x + w.y;
        of_lane[2 * h + sum_column_half(e)] = f16vec2(w);
      }
      weights[n] = make_a(of_lane);
    }
    UNROLL_MATRICES for (uint k = 0; k < kSteps; ++k) {
      MatrixC sum = sums[k];
      [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
        C_ELEMENT(sum, e) = C_ELEMENT(sum, e) * shrink[sum_half(e)];
      }
      UNROLL_MATRICES for (uint n = 0; n < kBlocks; ++n) {
        MatrixB b;
        LOAD_B_ROWS(b, v_at + n * 16 * kStride + 2 * k, kStride);
        MULTIPLY_ADD(weights[n], b, sum);
      }
      sums[k] = sum;
    }
    turn = 1 - turn;
    stage_positions(turn);
    barrier();
  }

  [[unroll]] for (uint h = 0; h < 2; ++h) weight_sum[h] = 1.0 / quad_sum(weight_sum[h]);
  [[unroll]] for (uint k = 0; k < kSteps; ++k) {
    [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
      C_ELEMENT(sums[k], e) = C_ELEMENT(sums[k], e) * weight_sum[sum_half(e)];
    }
  }
  // Rows come out of shared memory half by half, as store_columns takes them.  Each index into `sums` is
  // a loop's own: with another the compiler keeps the array in memory, at a third of the speed.
  uint at = subgroup_id() * 16 * kStoreStride, half_of = lane_id() & 1;
  uint pair = subgroup_id() * 16 + lane_id() / 2;
  bool is_there = pair / QUERIES < tile.num_rows;
  uint64_t to =
      activation_row(destination, FORMAT, num_heads * HEAD_DIM, tile.first_row + pair / QUERIES);
  uint column = (first_head + pair % QUERIES) * HEAD_DIM;
  HalfRow half_row[2];
  UNROLL_MATRICES for (uint k = 0; k < kSteps; ++k) {
    SUBGROUP_SYNC();
    STORE_C_ROWS(sums[k], at, kStoreStride);
    SUBGROUP_SYNC();
    [[unroll]] for (uint e = 0; e < 8; ++e) {
      uint word = at + lane_id() / 2 * kStoreStride + half_of * 2 + e / 4;
      half_row[k % 2].e[e] = uintBitsToFloat(shared_words[word][e % 4]);
    }
    if (k % 2 == 1 || k + 1 == kSteps) {
      store_columns(to, column + k / 2 * 32, half_of, half_row, is_there);
    }
  }
}
