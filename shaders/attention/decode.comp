// out[row, h] = sum_t softmax_t(scale q[row, h] . k[t, h / ratio]) v[t, h / ratio] over the
// positions t the row sees, [p - window + 1, p] or [0, p], for rows that have a sequence (nearly)
// to themselves, and for steps of few rows (TileRules in kernels/attention_step.h).  Memory bandwidth is the limit, so K and V are read once.
//
// The positions that a row sees are cut into pieces that start at multiples of a length (split-K, Dao
// et al. 2023, "Flash-Decoding").  The length follows from the row's own position alone, so a row's bits do not
// depend on the step's other rows.  A workgroup takes the pieces slot, slot + slots ... of QUERIES
// query heads of one KV head.  With one piece it writes the result at once.  With more it leaves
// (max, sum, accumulator) in memory, and the last workgroup adds them in the order of the pieces.
//
// Within a piece GROUP lanes share a position, each with every GROUP-th chunk of 8 dimensions, or
// every GROUP-th two where two come by one load, and go through it AT_ONCE positions at a time,
// softmax online; the groups are put together at the end.
// What comes next is on its way while a workgroup computes, the first from the very start.
//
// FRESH > 0: q, k and v come from the fused projection, normed and rotated here.  k and v of the
// step's own rows are not in the cache yet: a row takes those of its sequence from the projection
// and stores its own.
//
// x: slot * parts + part, y: row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
#include "attention_step.glsl"
#include "kv_cache.glsl"
#include "rotate.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 32;
layout(constant_id = 3) const uint HEAD_DIM = 64;  // a multiple of 8, at most 256
layout(constant_id = 4) const uint QUERIES = 1;
layout(constant_id = 5) const uint LANES = 8;  // the subgroup's size
layout(constant_id = 6) const uint GROUP = 4;  // a power of two, at most LANES
layout(constant_id = 7) const uint AT_ONCE = 2;
layout(constant_id = 8) const uint BLOCK_TOKENS = 16;
layout(constant_id = 9) const uint PIECE = 64;  // the shortest
layout(constant_id = 10) const uint MAX_PIECES = 32;  // and one more where the first is partial
layout(constant_id = 11) const uint FRESH = 0;        // most rows of a sequence in the step
layout(constant_id = 12) const uint FORMAT = 1;  // of the result; int8: QUERIES whole blocks of 32
layout(constant_id = 13) const uint KV_FORMAT = 0;
#include "push/decode.glsl"
#include "phase.glsl"

vec4 load_head(uint64_t from, uint i) { return load_passed_vec4(from + i * 4); }
vec4 load_head_weight(uint64_t weight, uint i) { return load_vec4(weight + i * 4); }
vec4 load_rotation(uint64_t table, uint i) { return load_vec4(table + uint64_t(i) * 4); }

layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer Shared4 { vec4 v; };
layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer Shared2 { vec2 v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer Counter { uint v; };

const uint kChunks = HEAD_DIM / 8;
const uint kQuads = HEAD_DIM / 4;
const uint kMine = (kChunks + GROUP - 1) / GROUP;  // chunks of a lane
const uint kPairs = KV_FORMAT == kKvQ8_0 ? 1 - kMine % 2 : 0;  // 1: chunks come two by one load
const uint kStreams = THREADS / GROUP;
const uint kTile = kStreams * AT_ONCE;  // positions of a workgroup at once
const uint kSubgroups = THREADS / LANES;
const uint kFresh = FRESH == 0 ? 1 : FRESH;
const uint kAll = QUERIES * kQuads;
const uint kFit = THREADS / kAll;  // threads there are for each four results
const uint kSplits = kFit == 0 ? 1 : (kFit > kSubgroups ? kSubgroups : kFit);
const float kLowest = -1e30;
const float kLog2E = 1.44269504088896;

shared uvec2 q_halves[kAll];                   // four float16 each
shared uvec2 fresh_quads[2 * kFresh * kQuads];  // k, then v, as kv_pack4 makes them
shared vec4 sums[kSubgroups * kAll];
shared vec2 totals[kSubgroups * QUERIES];  // max, sum of the weights
shared vec2 pieces[(MAX_PIECES + 1) * QUERIES];  // weight, sum of the weights
shared float factors[QUERIES];
shared uint num_done;

vec4 low(uvec4 bits) { return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y)); }
vec4 high(uvec4 bits) { return vec4(unpackHalf2x16(bits.z), unpackHalf2x16(bits.w)); }
uvec2 halves(vec4 x) { return uvec2(pack_halves(x.xy), pack_halves(x.zw)); }
uvec4 fresh_chunk(uint vector, uint chunk) {
  uint at = vector * kQuads + 2 * chunk;
  if (KV_FORMAT == kKvF16) return uvec4(fresh_quads[at], fresh_quads[at + 1]);
  return uvec4(fresh_quads[at].x, fresh_quads[at + 1].x, fresh_quads[at].y, 0);
}

// Over the lanes that share a position.
float group_sum(float value) {
  if (GROUP > 1) value += subgroupShuffleXor(value, 1);
  if (GROUP > 2) value += subgroupShuffleXor(value, 2);
  if (GROUP > 4) value += subgroupShuffleXor(value, 4);
  if (GROUP > 8) value += subgroupShuffleXor(value, 8);
  if (GROUP > 16) value += subgroupShuffleXor(value, 16);
  if (GROUP > 32) value += subgroupShuffleXor(value, 32);
  return value;
}
// Over the lanes of a subgroup that have the same dimensions.
float stream_sum(float value) {
  if (GROUP <= 1) value += subgroupShuffleXor(value, 1);
  if (GROUP <= 2) value += subgroupShuffleXor(value, 2);
  if (GROUP <= 4) value += subgroupShuffleXor(value, 4);
  if (GROUP <= 8 && LANES > 8) value += subgroupShuffleXor(value, 8);
  if (GROUP <= 16 && LANES > 16) value += subgroupShuffleXor(value, 16);
  if (GROUP <= 32 && LANES > 32) value += subgroupShuffleXor(value, 32);
  return value;
}
vec4 stream_sum4(vec4 value) {
  return vec4(stream_sum(value.x), stream_sum(value.y), stream_sum(value.z), stream_sum(value.w));
}

#include "decode_fresh.glsl"
#include "decode_combine.glsl"

// The c-th chunk of a lane; from kChunks on there is none.
uint chunk_of(uint c, uint member) {
  return kPairs != 0 ? (c / 2 * GROUP + member) * 2 + c % 2 : c * GROUP + member;
}
// A lane's chunks of a vector.
#define LOAD_CHUNKS(to, cache, vector)                                                \
  [[unroll]] for (uint c = 0; c < kMine; ++c) {                                       \
    uint chunk = min(chunk_of(c, member), kChunks - 1);                               \
    if (kPairs == 0) {                                                                \
      to[c] = load_kv_chunk(KV_FORMAT, cache, vector, chunk, BLOCK_TOKENS, HEAD_DIM); \
    } else if (c % 2 == 0) {                                                          \
      uvec4 pair[2] = load_kv_pair(cache, vector, chunk / 2, BLOCK_TOKENS, HEAD_DIM); \
      to[c] = pair[0];                                                                \
      to[c + 1] = pair[1];                                                            \
    }                                                                                 \
  }

// Requests the vectors of AT_ONCE positions of [from, end), from base on.
#define REQUEST(to_k, to_v, base, from, end)                                          \
  [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {                                     \
    uint position = clamp((base) + u * kStreams + stream, from, (end)-1);             \
    uint vector = kv_vector(table, position, BLOCK_TOKENS, num_kv_heads, kv_head);    \
    LOAD_CHUNKS(to_k[u], k_cache, vector)                                             \
    LOAD_CHUNKS(to_v[u], v_cache, vector)                                             \
  }

void main() {
  uint thread = gl_SubgroupID * LANES + gl_SubgroupInvocationID;
  uint parts = num_heads / QUERIES;
  uint part = gl_WorkGroupID.x % parts, slot = gl_WorkGroupID.x / parts;
  uint row = first_row + gl_WorkGroupID.y;
  AttentionRow own = attention_row(rows, row);
  if (own.fresh == 0) {  // the row's first workgroup counts for all of them
    if (gl_WorkGroupID.x == 0) {
      if (gl_WorkGroupID.y == 0) await_phase();
      end_phase_of(int(gl_NumWorkGroups.x));
    }
    return;
  }
  uint kv_head = part / (num_heads / num_kv_heads / QUERIES);
  uint last = own.position;
  uint first = window != 0 && last + 1 > window ? last + 1 - window : 0;
  uint piece = PIECE;
  while ((last - first) / piece >= MAX_PIECES) piece += piece;
  uint first_piece = first / piece, count = last / piece - first_piece + 1;
  if (slot >= count) return;
  // A part's first workgroup counts for those that have nothing to do.
  int counted = slot == 0 ? int(1 + slots - min(count, slots)) : 1;
  uint num_taken = (count - 1 - slot) / slots + 1;
  uint64_t table = step + own.tables[group];

  uint member = thread % GROUP, stream = thread / GROUP;
  uint i = slot, begin = (first_piece + i) * piece;
  uint end = min(begin + piece, last + 1), from = max(begin, first);
  uint base = begin + (from - begin) / kTile * kTile;
  uvec4 k_bits[AT_ONCE][kMine], v_bits[AT_ONCE][kMine];
  PairInputs fresh_inputs;
  if (FRESH == 0) await_phase();  // it wrote the cache
  REQUEST(k_bits, v_bits, base, from, end)
  if (FRESH != 0) {
    await_phase();
    fresh_inputs = first_fresh_pairs(row, part, kv_head, last, own.fresh);
  }

  uint first_fresh = last + 1;  // the cache has what lies before
  if (FRESH != 0) {
    first_fresh -= own.fresh;
    uint taken_end = (first_piece + slot + (num_taken - 1) * slots + 1) * piece;
    prepare(row, part, kv_head, last, own.fresh, table, taken_end > first_fresh ? own.fresh : 0,
            fresh_inputs);
  } else {
    uint64_t q_from = q + (uint64_t(row) * num_heads + part * QUERIES) * (HEAD_DIM * 2);
    for (uint j = thread; j < kAll; j += THREADS) {
      q_halves[j] = load_passed_uvec2(q_from + j * 8);
    }
  }
  barrier();

  vec4 q_low[QUERIES][kMine], q_high[QUERIES][kMine];
  [[unroll]] for (uint h = 0; h < QUERIES; ++h) {
    [[unroll]] for (uint c = 0; c < kMine; ++c) {
      uint chunk = chunk_of(c, member);
      uint at = h * kQuads + 2 * min(chunk, kChunks - 1);
      uvec4 bits = uvec4(q_halves[at], q_halves[at + 1]);
      float factor = chunk < kChunks ? scale * kLog2E : 0.0;
      q_low[h][c] = low(bits) * factor;
      q_high[h][c] = high(bits) * factor;
    }
  }
  uint64_t block = partials + uint64_t(gl_WorkGroupID.y * parts + part) *
                                  ((MAX_PIECES + 1) * QUERIES * (HEAD_DIM + 4) * 4);
  uint64_t to = activation_row(destination, FORMAT, num_heads * HEAD_DIM, row);
  uint column = part * (QUERIES * HEAD_DIM);

  vec4 sum_low[QUERIES][kMine], sum_high[QUERIES][kMine];
  float highest[QUERIES], weight_sum[QUERIES];
  bool begins = true;
  for (;;) {
    if (begins) {
      [[unroll]] for (uint h = 0; h < QUERIES; ++h) {
        highest[h] = kLowest;
        weight_sum[h] = 0.0;
        [[unroll]] for (uint c = 0; c < kMine; ++c) sum_low[h][c] = sum_high[h][c] = vec4(0.0);
      }
    }
    bool ends = base + kTile >= end;
    uint next_i = ends ? i + slots : i;
    uint next_base = base + kTile, next_from = from, next_end = end;
    if (ends) {
      begin = (first_piece + next_i) * piece;  // of a later piece: all of it is seen from its start
      next_base = next_from = begin;
      next_end = min(begin + piece, last + 1);
    }
    uvec4 next_k[AT_ONCE][kMine], next_v[AT_ONCE][kMine];
    if (next_i < count) {
      REQUEST(next_k, next_v, next_base, next_from, next_end)
    }
    if (FRESH != 0 && base + kTile > first_fresh) {
      [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
        uint position = clamp(base + u * kStreams + stream, from, end - 1);
        if (position >= first_fresh) {
          [[unroll]] for (uint c = 0; c < kMine; ++c) {
            uint chunk = min(chunk_of(c, member), kChunks - 1);
            k_bits[u][c] = fresh_chunk(position - first_fresh, chunk);
            v_bits[u][c] = fresh_chunk(position - first_fresh + kFresh, chunk);
          }
        }
      }
    }
    [[unroll]] for (uint h = 0; h < QUERIES; ++h) {
      float score[AT_ONCE], higher = highest[h];
      [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
        float x = 0.0;
        [[unroll]] for (uint c = 0; c < kMine; ++c) {
          vec4 a = kv_low(KV_FORMAT, k_bits[u][c]), b = kv_high(KV_FORMAT, k_bits[u][c]);
          float y = KV_FORMAT == kKvF16 ? x : 0.0;
          [[unroll]] for (uint e = 0; e < 4; ++e) y = fma(q_low[h][c][e], a[e], y);
          [[unroll]] for (uint e = 0; e < 4; ++e) y = fma(q_high[h][c][e], b[e], y);
          x = KV_FORMAT == kKvF16 ? y : fma(y, kv_scale(k_bits[u][c]), x);
        }
        uint position = base + u * kStreams + stream;
        score[u] = group_sum(x);
        if (position < from || position >= end) score[u] = uintBitsToFloat(0xFF800000u);
        higher = max(higher, score[u]);
      }
      float shrink = exp2(highest[h] - higher);
      highest[h] = higher;
      weight_sum[h] *= shrink;
      [[unroll]] for (uint c = 0; c < kMine; ++c) {
        sum_low[h][c] *= shrink;
        sum_high[h][c] *= shrink;
      }
      [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
        float weight = exp2(score[u] - higher);
        weight_sum[h] += weight;
        [[unroll]] for (uint c = 0; c < kMine; ++c) {
          float factor = KV_FORMAT == kKvF16 ? weight : weight * kv_scale(v_bits[u][c]);
          vec4 a = kv_low(KV_FORMAT, v_bits[u][c]), b = kv_high(KV_FORMAT, v_bits[u][c]);
          sum_low[h][c] = fma(vec4(factor), a, sum_low[h][c]);
          sum_high[h][c] = fma(vec4(factor), b, sum_high[h][c]);
        }
      }
    }
    begins = ends;
    if (ends) {
      // Put the streams of the subgroup together, then the subgroups.
      if (i != slot) barrier();
      [[unroll]] for (uint h = 0; h < QUERIES; ++h) {
        float top = subgroup_max(highest[h]), shrink = exp2(highest[h] - top);
        float total = stream_sum(weight_sum[h] * shrink);
        uint at = (gl_SubgroupID * QUERIES + h) * kQuads;
        [[unroll]] for (uint c = 0; c < kMine; ++c) {
          vec4 a = stream_sum4(sum_low[h][c] * shrink), b = stream_sum4(sum_high[h][c] * shrink);
          uint chunk = chunk_of(c, member);
          if (gl_SubgroupInvocationID < GROUP && chunk < kChunks) {
            sums[at + 2 * chunk] = a;
            sums[at + 2 * chunk + 1] = b;
          }
        }
        if (gl_SubgroupInvocationID == 0) totals[gl_SubgroupID * QUERIES + h] = vec2(top, total);
      }
      barrier();
      for (uint at = 0; at < kAll; at += THREADS) {
        bool is_there = at + thread < kAll;
        uint quad = is_there ? at + thread : 0, h = quad / kQuads;
        float top = kLowest, total = 0.0;
        for (uint s = 0; s < kSubgroups; ++s) top = max(top, totals[s * QUERIES + h].x);
        vec4 sum = vec4(0.0);
        for (uint s = 0; s < kSubgroups; ++s) {
          float weight = exp2(totals[s * QUERIES + h].x - top);
          total = fma(weight, totals[s * QUERIES + h].y, total);
          sum = fma(vec4(weight), sums[s * kAll + quad], sum);
        }
        if (count == 1) {
          store_activation(FORMAT, to, column + quad * 4, sum * (1.0 / total), is_there);
        } else if (is_there) {
          Shared4(partial_sum(block, i, quad)).v = sum;
          if (quad % kQuads == 0) Shared2(partial_total(block, i, h)).v = vec2(top, total);
        }
      }
    }
    if (next_i >= count) break;
    // Copied here, and not before the request: Mesa 25.0 then takes what the request loads for the
    // copy.
    [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
      [[unroll]] for (uint c = 0; c < kMine; ++c) {
        k_bits[u][c] = next_k[u][c];
        v_bits[u][c] = next_v[u][c];
      }
    }
    i = next_i;
    base = next_base;
    from = next_from;
    end = next_end;
  }
  if (count == 1) {
    end_phase_of(counted);
    return;
  }
  memoryBarrierBuffer();
  barrier();
  uint64_t counter = counters + (gl_WorkGroupID.y * parts + part) * 4;
  if (thread == 0) num_done = atomicAdd(Counter(counter).v, num_taken) + num_taken;
  barrier();
  if (num_done != count) {
    end_phase_of(counted);
    return;
  }
  memoryBarrierBuffer();
  if (thread == 0) Counter(counter).v = 0;
  combine(block, count, to, column, thread);
  end_phase_of(counted);
}
