// out[row, h] = sum_t softmax_t(scale q[row, h] . k[t, h / group]) v[t, h / group] over the
// positions t the row sees: [p - window + 1, p], or [0, p] where window is 0, and all of its picture.
//
// One subgroup computes QUERIES heads of one KV head for one row: x KV head and part of its
// query heads, y row.  It walks over the positions in pieces of a subgroup's size that begin at
// multiples of it, softmax online (Milakov, Gimelshein 2018): in the first half of a piece a lane
// owns a position, in the second 8 dimensions.  Order and pieces depend on p alone, so the result
// does not depend on the other rows of the step.  TEXELS: q, K and V come through texel buffers.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "kv_cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint HEAD_DIM = 64;  // a multiple of 8, at most 256
layout(constant_id = 4) const uint QUERIES = 1;
layout(constant_id = 5) const uint LANES = 8;  // the subgroup's size
layout(constant_id = 6) const uint KV_FORMAT = 0;  // TEXELS: float16
layout(constant_id = 7) const uint PICTURE_ROWS = 0;  // of a picture; 0: steps have none
#include "push/attention.glsl"
const uint kChunks = HEAD_DIM / 8;                  // of 8 dimensions
const uint kOwned = (kChunks + LANES - 1) / LANES;  // chunks a lane accumulates
const uint kAtOnce = kOwned == 1 ? 8 : 2;           // values of V on their way
const uint kOctets = (kChunks + 7) / 8;             // runs of 8 chunks

// Eight float16 at a multiple of eight of q, and chunk `chunk` of a vector of the cache.
#ifdef TEXELS
layout(binding = 0, rgba32ui) uniform readonly restrict uimageBuffer q_texels;
layout(binding = 1, rgba32ui) uniform readonly restrict uimageBuffer k_texels;
layout(binding = 2, rgba32ui) uniform readonly restrict uimageBuffer v_texels;
uvec4 load_q(uint at) { return imageLoad(q_texels, int(at)); }
uvec4 load_k(uint vector, uint chunk) { return imageLoad(k_texels, int(vector * kChunks + chunk)); }
uvec4 load_v(uint vector, uint chunk) { return imageLoad(v_texels, int(vector * kChunks + chunk)); }
#else
uvec4 load_q(uint at) { return load_uvec4(q + uint64_t(at) * 16); }
uvec4 load_k(uint vector, uint chunk) {
  return load_kv_chunk(KV_FORMAT, k_cache, vector, chunk, block_tokens, HEAD_DIM);
}
uvec4 load_v(uint vector, uint chunk) {
  return load_kv_chunk(KV_FORMAT, v_cache, vector, chunk, block_tokens, HEAD_DIM);
}
#endif

float minus_infinity() { return uintBitsToFloat(0xFF800000u); }

// Eight float16 as they lie in memory: values on their way stay packed.
vec4 low(uvec4 bits) { return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y)); }
vec4 high(uvec4 bits) { return vec4(unpackHalf2x16(bits.z), unpackHalf2x16(bits.w)); }

struct Chunk {
  vec4 low, high;
};

void main() {
  uint row = gl_WorkGroupID.y;
  if (row >= num_rows(step)) return;
  uint lane = gl_SubgroupInvocationID;
  uint parts = num_heads / (num_kv_heads * QUERIES);
  uint kv_head = gl_WorkGroupID.x / parts;
  uint first_head = row * num_heads + gl_WorkGroupID.x * QUERIES;
  uint64_t table = row_block_table(step, row, group);
  uint last = row_position(step, row);
  uint first = window != 0 && last + 1 > window ? last + 1 - window : 0;
  uint picture = PICTURE_ROWS == 0 ? 0 : picture_end(step, row);
  if (picture != 0) {
    last = row_position(step, picture - 1);
    first = min(first, last + 1 - PICTURE_ROWS);
  }

  Chunk sum[QUERIES][kOwned];
  float highest[QUERIES], weight_sum[QUERIES];
  [[unroll]] for (uint h = 0; h < QUERIES; ++h) {
    highest[h] = minus_infinity();
    weight_sum[h] = 0.0;
    [[unroll]] for (uint c = 0; c < kOwned; ++c) sum[h][c] = Chunk(vec4(0.0), vec4(0.0));
  }

  for (uint base = first / LANES * LANES; base <= last; base += LANES) {
    bool seen = base + lane >= first && base + lane <= last;
    uint position = clamp(base + lane, first, last);  // reads always hit the cache
    uint vector = kv_vector(table, position, block_tokens, num_kv_heads, kv_head);
    float score[QUERIES];
    [[unroll]] for (uint h = 0; h < QUERIES; ++h) score[h] = 0.0;
    // q comes in spread over eight lanes and goes round by shuffles.
    [[unroll]] for (uint octet = 0; octet < kOctets; ++octet) {
      uint own = min(octet * 8 + (lane & 7), kChunks - 1);
      uvec4 packed_q[QUERIES], packed_k[8];
      [[unroll]] for (uint h = 0; h < QUERIES; ++h) {
        packed_q[h] = load_q((first_head + h) * kChunks + own);
      }
      [[unroll]] for (uint c = 0; c < 8; ++c) {
        packed_k[c] = kv_halves(KV_FORMAT, load_k(vector, min(octet * 8 + c, kChunks - 1)));
      }
      [[unroll]] for (uint c = 0; c < 8; ++c) {
        vec4 k_low = low(packed_k[c]), k_high = high(packed_k[c]);
        if (octet * 8 + c >= kChunks) k_low = k_high = vec4(0.0);
        [[unroll]] for (uint h = 0; h < QUERIES; ++h) {
          uvec4 packed = subgroupShuffle(packed_q[h], c);
          vec4 x = low(packed), y = high(packed);
          [[unroll]] for (uint e = 0; e < 4; ++e) score[h] = fma(x[e], k_low[e], score[h]);
          [[unroll]] for (uint e = 0; e < 4; ++e) score[h] = fma(y[e], k_high[e], score[h]);
        }
      }
    }
    [[unroll]] for (uint h = 0; h < QUERIES; ++h) {
      score[h] = seen ? score[h] * scale : minus_infinity();
      float higher = max(highest[h], subgroup_max(score[h]));
      float shrink = exp(highest[h] - higher);
      highest[h] = higher;
      score[h] = seen ? exp(score[h] - higher) : 0.0;
      weight_sum[h] = fma(weight_sum[h], shrink, score[h]);
      [[unroll]] for (uint c = 0; c < kOwned; ++c) {
        sum[h][c].low *= shrink;
        sum[h][c].high *= shrink;
      }
    }
    [[unroll]] for (uint t0 = 0; t0 < LANES; t0 += kAtOnce) {
      uvec4 packed_v[kAtOnce][kOwned];
      [[unroll]] for (uint t = 0; t < kAtOnce; ++t) {
        uint value = subgroupShuffle(vector, t0 + t);
        [[unroll]] for (uint c = 0; c < kOwned; ++c) {
          packed_v[t][c] =
              kv_halves(KV_FORMAT, load_v(value, min(c * LANES + lane, kChunks - 1)));
        }
      }
      [[unroll]] for (uint t = 0; t < kAtOnce; ++t) {
        [[unroll]] for (uint h = 0; h < QUERIES; ++h) {
          vec4 p = vec4(subgroupShuffle(score[h], t0 + t));
          [[unroll]] for (uint c = 0; c < kOwned; ++c) {
            sum[h][c].low = fma(p, low(packed_v[t][c]), sum[h][c].low);
            sum[h][c].high = fma(p, high(packed_v[t][c]), sum[h][c].high);
          }
        }
      }
    }
  }
  [[unroll]] for (uint h = 0; h < QUERIES; ++h) {
    float factor = 1.0 / subgroup_sum(weight_sum[h]);
    [[unroll]] for (uint c = 0; c < kOwned; ++c) {
      uint chunk = c * LANES + lane;
      if (chunk >= kChunks) continue;
      uint64_t to = destination + (uint64_t(first_head + h) * HEAD_DIM + chunk * 8) * 2;
      store_half4(to, sum[h][c].low * factor);
      store_half4(to + 8, sum[h][c].high * factor);
    }
  }
}
