// From the sums of a workgroup to memory: the splits' sums added up, the outputs stored.
#ifndef TANDEM_COOP_OUTPUT_GLSL
#define TANDEM_COOP_OUTPUT_GLSL
#include "activation.glsl"
#include "geglu.glsl"
#include "kv_cache.glsl"

// Of kOutputHeadsF16: row r is position r, r / BLOCK_TOKENS its block.
layout(constant_id = 12) const uint HEAD_DIM = 8;  // a multiple of 8
layout(constant_id = 13) const uint BLOCK_TOKENS = 1;

// Written by one workgroup, read by another.
layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer Partial { vec4 v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer Arrivals { uint n; };
shared uint arrived;

// Elements 4 part .. +3 of the lane in sum i, of split `split` of `splits` of tile `tile`.
Partial partial_at(uint tile, uint split, uint splits, uint i, uint part) {
  uint64_t first = (uint64_t(tile) * splits + split) * (THREADS * SUMS * 2);
  return Partial(workspace + (first + (i * 2 + part) * THREADS + gl_LocalInvocationIndex) * 16);
}

// Leaves this workgroup's sums for the others.  In the last of them to arrive: gathers all, in order,
// and returns true.
bool add_splits(inout MatrixC sum[SUMS], uint tile, uint split, uint splits) {
  [[unroll]] for (uint i = 0; i < SUMS; ++i) {
    [[unroll]] for (uint part = 0; part < 2; ++part) {
      vec4 v;
      [[unroll]] for (uint e = 0; e < 4; ++e) v[e] = C_ELEMENT(sum[i], 4 * part + e);
      partial_at(tile, split, splits, i, part).v = v;
    }
  }
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationIndex == 0) {
    memoryBarrierBuffer();
    arrived = atomicAdd(Arrivals(arrivals + tile * 4).n, 1);
    memoryBarrierBuffer();
  }
  barrier();
  if (arrived + 1 != splits) return false;
  memoryBarrierBuffer();
  for (uint s = 0; s < splits; ++s) {
    vec4 v[SUMS * 2];
    [[unroll]] for (uint i = 0; i < SUMS * 2; ++i) v[i] = partial_at(tile, s, splits, i / 2, i % 2).v;
    [[unroll]] for (uint i = 0; i < SUMS * 2; ++i) {
      [[unroll]] for (uint e = 0; e < 4; ++e) {
        float before = s == 0 ? 0.0 : C_ELEMENT(sum[i / 2], 4 * (i % 2) + e);
        C_ELEMENT(sum[i / 2], 4 * (i % 2) + e) = before + v[i][e];
      }
    }
  }
  if (gl_LocalInvocationIndex == 0) Arrivals(arrivals + tile * 4).n = 0;
  return true;
}

// Products [row, column .. column + 3], which all exist, with their bias: for the vision encoder.
void store_with_bias(uint row, uint column, vec4 v) {
  vec4 y = v + load_vec4(bias + uint64_t(column) * 4);
  if (OUTPUT == kOutputBiasGeluF16) {
    y = vec4(gelu_tanh(y.x), gelu_tanh(y.y), gelu_tanh(y.z), gelu_tanh(y.w)) / kGegluHalfScale;
    store_activation(kActivationF16, activation_row(destination, kActivationF16, out_stride, row),
                     column, y, true);
    return;
  }
  uint vector = (row / BLOCK_TOKENS * (out_stride / HEAD_DIM) + column / HEAD_DIM) * BLOCK_TOKENS +
                row % BLOCK_TOKENS;
  store_kv4(kKvF16, destination, vector, column % HEAD_DIM, kv_pack4(kKvF16, y), BLOCK_TOKENS,
            HEAD_DIM);
}

// Products [row, column .. column + 3], those of them that exist.
void store_four(uint row, uint column, vec4 v) {
  if (OUTPUT == kOutputBiasGeluF16 || OUTPUT == kOutputHeadsF16) {
    store_with_bias(row, out_column + column, v);
    return;
  }
  uint have = min(n_dim - column, 4);
  if (OUTPUT == kOutputF32) {
    uint64_t to = destination + (uint64_t(row) * out_stride + out_column + column) * 4;
    if (have == 4 && (to & 15) == 0) {
      store_vec4(to, v);
    } else {
      for (uint i = 0; i < have; ++i) Float(to + 4 * i).v = v[i];
    }
    return;
  }
  uint64_t at = uint64_t(row) * out_stride + out_column + column / 2;
  vec2 activated = vec2(gelu_tanh(v.x) * v.y, gelu_tanh(v.z) * v.w);
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    if (2 * i >= have) break;
    if (OUTPUT == kOutputGegluF32) {
      Float(destination + (at + i) * 4).v = activated[i];
    } else {
      Half(destination + (at + i) * 2).v = float16_t(activated[i] * (1.0 / kGegluHalfScale));
    }
  }
}

// A sum's elements are spread over the lanes in an order that only the device knows: they are put
// into shared memory and come back four columns of a row at a time.
void store_output(MatrixC sum[SUMS], uint row0, uint rows, uint column0) {
  uint at = subgroup_id() * 16 * C_STRIDE;
  [[unroll]] for (uint j = 0; j < B_TILES; ++j) {
    [[unroll]] for (uint i = 0; i < A_TILES; ++i) {
      SUBGROUP_SYNC();
      STORE_C(sum[i * B_TILES + j], at, C_STRIDE);
      SUBGROUP_SYNC();
      [[unroll]] for (uint part = 0; part < 2; ++part) {
        uint r = lane_id() / 4 + 8 * part, four = lane_id() % 4;
        uint row = row0 + 16 * j + r, column = column0 + 16 * i + 4 * four;
        if (row < rows && column < n_dim) {
          store_four(row, column, uintBitsToFloat(shared_words[at + r * C_STRIDE + four]) * x_scale);
        }
      }
    }
  }
}
#endif
