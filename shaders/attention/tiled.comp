// Attention (see attention.comp) of many rows of one sequence: a tile of rows shares what it reads
// of the cache (Dao 2023, "FlashAttention-2").
//
// A workgroup takes a tile of rows and QUERIES query heads of one KV head: ROW_BLOCKS times 16 (row,
// head) pairs a team of 32 invocations, whose q and sums stay in registers.  K and V come through shared memory,
// POSITIONS at a time, from multiples of POSITIONS on, so that a row's bits do not depend on the
// tile it is in: what it does not see adds nothing.
//
// x: KV head and part of its query heads, y: tile.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
#include "attention_step.glsl"
#include "kv_cache.glsl"
#include "matrix16.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128;
layout(constant_id = 3) const uint HEAD_DIM = 64;  // a multiple of 8, at most 256
layout(constant_id = 4) const uint QUERIES = 1;    // divides 16
layout(constant_id = 5) const uint POSITIONS = 32;  // a multiple of 16
layout(constant_id = 6) const uint AHEAD = 1;  // 1: the next positions are read ahead
layout(constant_id = 7) const uint ROW_BLOCKS = 1;
layout(constant_id = 8) const uint BLOCK_TOKENS = 16;
layout(constant_id = 12) const uint FORMAT = 1;  // of the result; int8: HEAD_DIM a multiple of 32
layout(constant_id = 13) const uint KV_FORMAT = 0;
#include "push/tiled.glsl"

const uint kTeams = THREADS / 32;
const uint kTeamPairs = 16 * ROW_BLOCKS;
const uint kPairs = kTeams * kTeamPairs;  // (row, head): row-major
const uint kChunks = HEAD_DIM / 8;
const uint kSteps = (HEAD_DIM + 15) / 16;  // of 16 dimensions, the last filled up with zeros
const uint kStride = 2 * kSteps + 1;       // of a vector in shared memory; one against conflicts
const uint kBlocks = POSITIONS / 16;
const uint kStaged = POSITIONS * 2 * kSteps;  // chunks of K, or of V
const uint kLoads = (kStaged + THREADS - 1) / THREADS;
const uint kPasses = (kPairs + 2 * POSITIONS - 1) / (2 * POSITIONS);  // that q takes to stage
const float kLowest = -1e30;
const float kLog2E = 1.44269504088896;

shared uvec4 staged[2 * POSITIONS * kStride];  // K, then V
#ifdef COOPERATIVE
const uint kWeightStride = POSITIONS / 8 + 1;
const uint kScoreStride = POSITIONS + 4;
shared float scores[kPairs * kScoreStride];
shared uvec4 weights[kPairs * kWeightStride];
shared float shrinks[kPairs];
#endif

uvec4 chunk_of(uint64_t vector, uint chunk) {
  return chunk < kChunks ? load_uvec4(vector + chunk * 16) : uvec4(0);
}

uvec4 kv_chunk(uint64_t cache, uint vector, uint chunk) {
  if (chunk >= kChunks) return uvec4(0);
  return load_kv_chunk(KV_FORMAT, cache, vector, chunk, BLOCK_TOKENS, HEAD_DIM);
}

uvec4 next_k[kLoads], next_v[kLoads];  // chunks on their way

void load_positions(uint64_t table, uint base, uint from, uint to, uint kv_head, uint thread) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    uint item = min(thread + i * THREADS, kStaged - 1);
    uint position = clamp(base + item / (2 * kSteps), from, to);  // reads always hit the cache
    uint vector = kv_vector(table, position, BLOCK_TOKENS, num_kv_heads, kv_head);
    uint chunk = item % (2 * kSteps);
    next_k[i] = kv_chunk(k_cache, vector, chunk);
    next_v[i] = kv_chunk(v_cache, vector, chunk);
  }
}
void stage_positions(uint thread) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    uint item = thread + i * THREADS;
    uint at = item / (2 * kSteps) * kStride + item % (2 * kSteps);
    if (kStaged % THREADS == 0 || item < kStaged) {
      staged[at] = kv_halves(KV_FORMAT, next_k[i]);
      staged[at + POSITIONS * kStride] = kv_halves(KV_FORMAT, next_v[i]);
    }
  }
}

#include "tiled_store.glsl"

void main() {
  uint thread = gl_LocalInvocationIndex;
  AttentionTile tile = attention_tile(tiles, gl_WorkGroupID.y);
  if (tile.num_rows == 0) return;
  AttentionRow start = attention_row(rows, tile.first_row);
  uint kv_head = gl_WorkGroupID.x / (num_heads / num_kv_heads / QUERIES);
  uint first_head = gl_WorkGroupID.x * QUERIES;
  uint64_t table = step + start.tables[group];
  uint last = last_seen(tile, start.position + tile.num_rows - 1);
  uint first = first_seen(tile, start.position, window);

  MatrixA queries[ROW_BLOCKS * kSteps];
  UNROLL for (uint pass = 0; pass < kPasses; ++pass) {
    barrier();
    for (uint i = thread; i < 2 * kStaged; i += THREADS) {
      uint pair = pass * 2 * POSITIONS + i / (2 * kSteps), chunk = i % (2 * kSteps);
      uint row = tile.first_row + min(pair / QUERIES, tile.num_rows - 1);
      uint64_t head = uint64_t(row) * num_heads + first_head + pair % QUERIES;
      staged[i / (2 * kSteps) * kStride + chunk] = chunk_of(q + head * (HEAD_DIM * 2), chunk);
    }
    barrier();
    UNROLL for (uint r = 0; r < ROW_BLOCKS; ++r) {
      uint block = team_id() * kTeamPairs + r * 16;
      if (block / (2 * POSITIONS) == pass) {
        UNROLL for (uint k = 0; k < kSteps; ++k) {
          LOAD_A(queries[r * kSteps + k], staged, block % (2 * POSITIONS) * kStride + 2 * k,
                 kStride);
        }
      }
    }
  }

  uint lane = team_lane(), half_of = lane & 1;
  uint own_pair[ROW_BLOCKS], own_first[ROW_BLOCKS], own_last[ROW_BLOCKS];
  float highest[ROW_BLOCKS], weight_sum[ROW_BLOCKS];
  MatrixC sums[ROW_BLOCKS * kSteps];
  UNROLL for (uint r = 0; r < ROW_BLOCKS; ++r) {
    own_pair[r] = team_id() * kTeamPairs + r * 16 + lane / 2;
    uint position = start.position + min(own_pair[r] / QUERIES, tile.num_rows - 1);
    own_last[r] = last_seen(tile, position);
    own_first[r] = first_seen(tile, position, window);
    highest[r] = kLowest;
    weight_sum[r] = 0.0;
    UNROLL for (uint k = 0; k < kSteps; ++k) sums[r * kSteps + k] = ZERO_C;
  }
#ifdef COOPERATIVE
  uint own_scores = team_id() * kTeamPairs * kScoreStride;
  uint own_weights = team_id() * kTeamPairs * kWeightStride;
  [[unroll]] for (uint e = 0; e < 8; ++e) {
    scores[own_scores + lane / 2 * kScoreStride + half_of * 8 + e] = float(lane / 2);
  }
  subgroupBarrier();
  MatrixC row_numbers;  // which row an element is in is not specified
  coopMatLoad(row_numbers, scores, own_scores, kScoreStride,
              gl_CooperativeMatrixLayoutRowMajor);
#endif

  uint base = first / POSITIONS * POSITIONS;
  if (AHEAD != 0) load_positions(table, base, first, last, kv_head, thread);
  for (; base <= last; base += POSITIONS) {
    if (AHEAD == 0) load_positions(table, base, first, last, kv_head, thread);
    barrier();
    stage_positions(thread);
    barrier();
    if (AHEAD != 0) load_positions(table, base + POSITIONS, first, last, kv_head, thread);

    HalfRow weight[ROW_BLOCKS * kBlocks];
    UNROLL for (uint n = 0; n < kBlocks; ++n) {
      MatrixC score[ROW_BLOCKS];
      UNROLL for (uint r = 0; r < ROW_BLOCKS; ++r) score[r] = ZERO_C;
      UNROLL for (uint k = 0; k < kSteps; ++k) {
        MatrixB b;
        LOAD_B_TRANSPOSED(b, staged, n * 16 * kStride + 2 * k, kStride);
        UNROLL for (uint r = 0; r < ROW_BLOCKS; ++r) {
          MULTIPLY_ADD(score[r], queries[r * kSteps + k], b, staged);
        }
      }
      UNROLL for (uint r = 0; r < ROW_BLOCKS; ++r) {
#ifdef COOPERATIVE
        coopMatStore(score[r], scores, own_scores + r * 16 * kScoreStride + n * 16, kScoreStride,
                     gl_CooperativeMatrixLayoutRowMajor);
#else
        weight[r * kBlocks + n] = score[r];
#endif
      }
    }
#ifdef COOPERATIVE
    subgroupBarrier();
#endif
    UNROLL for (uint r = 0; r < ROW_BLOCKS; ++r) {
      float higher = highest[r];
      [[unroll]] for (uint n = 0; n < kBlocks; ++n) {
        [[unroll]] for (uint e = 0; e < 8; ++e) {
          uint column = n * 16 + half_of * 8 + e, position = base + column;
#ifdef COOPERATIVE
          float score = scores[own_scores + (r * 16 + lane / 2) * kScoreStride + column];
#else
          float score = weight[r * kBlocks + n].e[e];
#endif
          bool seen = position >= own_first[r] && position <= own_last[r];
          score = seen ? score * (scale * kLog2E) : uintBitsToFloat(0xFF800000u);
          weight[r * kBlocks + n].e[e] = score;
          higher = max(higher, score);
        }
      }
      higher = max(higher, subgroupShuffleXor(higher, 1));
      float shrink = exp2(highest[r] - higher);
      highest[r] = higher;
      weight_sum[r] *= shrink;
      [[unroll]] for (uint n = 0; n < kBlocks; ++n) {
        [[unroll]] for (uint e = 0; e < 8; ++e) {
          float w = exp2(weight[r * kBlocks + n].e[e] - higher);
          weight[r * kBlocks + n].e[e] = w;
          weight_sum[r] += w;
        }
#ifdef COOPERATIVE
        weights[own_weights + (r * 16 + lane / 2) * kWeightStride + 2 * n + half_of] =
            packed(weight[r * kBlocks + n]);
#endif
      }
#ifdef COOPERATIVE
      if (half_of == 0) shrinks[own_pair[r]] = shrink;
#else
      for (uint k = 0; k < kSteps; ++k) {
        [[unroll]] for (uint e = 0; e < 8; ++e) sums[r * kSteps + k].e[e] *= shrink;
      }
#endif
    }
#ifdef COOPERATIVE
    subgroupBarrier();
    [[unroll]] for (uint r = 0; r < ROW_BLOCKS; ++r) {
      MatrixC factors;
      [[unroll]] for (uint e = 0; e < factors.length(); ++e) {
        factors[e] = shrinks[team_id() * kTeamPairs + r * 16 + uint(row_numbers[e])];
      }
      [[unroll]] for (uint k = 0; k < kSteps; ++k) {
        [[unroll]] for (uint e = 0; e < factors.length(); ++e) {
          sums[r * kSteps + k][e] *= factors[e];
        }
      }
    }
#endif
    UNROLL for (uint n = 0; n < kBlocks; ++n) {
      MatrixA a[ROW_BLOCKS];
      UNROLL for (uint r = 0; r < ROW_BLOCKS; ++r) {
#ifdef COOPERATIVE
        LOAD_A(a[r], weights, own_weights + r * 16 * kWeightStride + 2 * n, kWeightStride);
#else
        a[r].half_row = packed(weight[r * kBlocks + n]);
#endif
      }
      UNROLL for (uint k = 0; k < kSteps; ++k) {
        MatrixB b;
        LOAD_B(b, staged, (POSITIONS + n * 16) * kStride + 2 * k, kStride);
        UNROLL for (uint r = 0; r < ROW_BLOCKS; ++r) {
          MULTIPLY_ADD(sums[r * kSteps + k], a[r], b, staged);
        }
      }
    }
  }

  UNROLL for (uint r = 0; r < ROW_BLOCKS; ++r) {
    float factor = 1.0 / (weight_sum[r] + subgroupShuffleXor(weight_sum[r], 1));
    uint pair = own_pair[r];
    bool is_there = pair / QUERIES < tile.num_rows;
    uint64_t to =
        activation_row(destination, FORMAT, num_heads * HEAD_DIM, tile.first_row + pair / QUERIES);
    uint column = (first_head + pair % QUERIES) * HEAD_DIM;
    UNROLL for (uint k = 0; k < kSteps; k += 2) {
      HalfRow h[2];
      [[unroll]] for (uint b = 0; b < 2; ++b) {
        uint from = r * kSteps + min(k + b, kSteps - 1);
#ifdef COOPERATIVE
        subgroupBarrier();
        coopMatStore(sums[from], scores, own_scores, kScoreStride,
                     gl_CooperativeMatrixLayoutRowMajor);
        subgroupBarrier();
        [[unroll]] for (uint e = 0; e < 8; ++e) {
          h[b].e[e] = scores[own_scores + lane / 2 * kScoreStride + half_of * 8 + e] * factor;
        }
#else
        h[b] = sums[from];
        [[unroll]] for (uint e = 0; e < 8; ++e) h[b].e[e] *= factor;
#endif
      }
      store_columns(to, column + k * 16, half_of, h, is_there);
    }
  }
}
