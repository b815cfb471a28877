// out[m, n] = sum_k x[m, k] * w[n, k] for few rows m, or with GEGLU
// out[m, i] = gelu_tanh(gate) * up, gate and up the products of w's rows 2i and 2i + 1:
// the weights are read once, as fast as the memory gives them.
//
// A thread owns a row of w in each of TILES tiles of 32 rows, and a team of 32 threads walks over
// units of 256 columns (64 where weights are 16-bit floats).  The teams of a workgroup share the
// units of its part of k among them, team t taking units t, t + teams, ...; a team's activations go
// through shared memory of its own, so teams wait for each other only at the end, when their sums
// are added in order.  The SPLIT_K parts of k (grid y) write partial sums, which the consumer adds
// in order.
// So a row's result depends on k's division alone, not on ROWS or TILES or the rows beside it.
//
// With NORM_UNITS the workgroup makes its one row of input first (norm_input.glsl), for all tiles
// it takes; SETS sets of teams, each with tiles of its own, share it then.
//
// Grid: x workgroups that share the groups of TILES tiles, y parts of k times passes over ROWS.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
#include "geglu.glsl"
#include "unit_weights.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 32;
layout(constant_id = 5) const uint ROWS = 1;
layout(constant_id = 6) const uint TILES = 1;
layout(constant_id = 7) const uint SPLIT_K = 1;
layout(constant_id = 8) const uint X_FORMAT = 2;
layout(constant_id = 9) const bool GEGLU = false;    // TILES is even
layout(constant_id = 10) const uint OUT_FORMAT = 0;  // with GEGLU
layout(constant_id = 11) const uint LANES = 32;      // the subgroup's size
layout(constant_id = 12) const uint PARTS = 1;       // of a unit's weights, loaded one by one: 1, 2, 4
layout(constant_id = 13) const uint NORM_UNITS = 0;  // of k_dim; 0: x is read as it is
layout(constant_id = 17) const uint SETS = 1;        // of teams in a workgroup
#include "push/matvec.glsl"
#include "phase.glsl"

const uint kTeams = THREADS / 32 / SETS;
const uint kSetThreads = kTeams * 32;
const uint kUnit = kIsFloat ? 64 : 256;
// 16 bytes each, for a row and unit: 16 of elements; 2 of scales; 2 of scaled sums.
const uint kStaged = kIsFloat ? 16 : kHasMinimum ? 20 : 18;
const uint kFloatLoads = (ROWS * 16 + 31) / 32;
const uint kSums = ROWS * TILES;
const uint kAtOnce = kSums < 8 ? kSums : 8;  // sums a thread hands over at once
shared uvec4 staged[(NORM_UNITS > 0 ? NORM_UNITS : SETS * kTeams * ROWS) * kStaged];
shared float sums[kAtOnce * THREADS];
shared float columns[GEGLU ? SETS * kAtOnce * 16 : 1];

// A team's threads see what they stored.
void team_barrier() {
  if (LANES < 32) {
    barrier();
  } else {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
  }
}

#include "norm_input.glsl"
#include "staged_blocks.glsl"
uvec4 load_input(uint64_t address) { return load_passed_uvec4(address); }

// Float activations of unit u, 4 elements a load.
void stage_floats(uint to, uint m0, uint rows, uint u, uint lane) {
  uvec4 loaded[kFloatLoads];
  [[unroll]] for (uint i = 0; i < kFloatLoads; ++i) {
    uint at = i * 32 + lane, k = u * 64 + at % 16 * 4;
    uint64_t row = x_row(m0 + min(at / 16, rows - 1));
    vec4 v = vec4(0.0);
    if (k < k_dim) {
      v = X_FORMAT == kActivationF16    ? load_passed_half4(row + k * 2)
          : X_FORMAT == kActivationBf16 ? load_passed_bf16x4(row + k * 2)
                                        : load_passed_vec4(row + k * 4);
    }
    loaded[i] = floatBitsToUint(v);
  }
  [[unroll]] for (uint i = 0; i < kFloatLoads; ++i) {
    if (i * 32 + lane < ROWS * 16) staged[to + i * 32 + lane] = loaded[i];
  }
}

// Sum of each block's elements times its scale, for formats with a minimum.
void stage_sums(uint to, uint lane) {
  uvec4 ones = uvec4(0x01010101u);
  for (uint i = lane; i < ROWS * 8; i += 32) {
    uint at = to + i / 8 * kStaged, b = i % 8;
    int sum = dot16(staged[at + 2 * b], ones) + dot16(staged[at + 2 * b + 1], ones);
    float scale = uintBitsToFloat(staged[at + 16 + b / 4][b % 4]);
    staged[at + 18 + b / 4][b % 4] = floatBitsToUint(float(sum) * scale);
  }
}

float staged_float(uint piece, uint i) { return uintBitsToFloat(staged[piece + i / 4][i % 4]); }

// Adds the products of part `part` of a unit.
void add_floats(inout float sum[kSums], Unit w[TILES], uint to, uint part) {
  [[unroll]] for (uint j = 0; j < 16 / PARTS; ++j) {
    uint i = part * (16 / PARTS) + j;
    vec4 v[TILES];
    [[unroll]] for (uint t = 0; t < TILES; ++t) v[t] = float_weights(w[t], i);
    [[unroll]] for (uint m = 0; m < ROWS; ++m) {
      vec4 a = uintBitsToFloat(staged[to + m * kStaged + i]);
      [[unroll]] for (uint t = 0; t < TILES; ++t) {
        [[unroll]] for (uint e = 0; e < 4; ++e) {
          sum[m * TILES + t] = fma(a[e], v[t][e], sum[m * TILES + t]);
        }
      }
    }
  }
}
void add_blocks(inout float sum[kSums], Unit w[TILES], uint to, uint part) {
  [[unroll]] for (uint j = 0; j < 8 / PARTS; ++j) {
    uint b = part * (8 / PARTS) + j;
    Block block[TILES];
    [[unroll]] for (uint t = 0; t < TILES; ++t) block[t] = unpack_block(w[t], b);
    [[unroll]] for (uint m = 0; m < ROWS; ++m) {
      uint at = to + m * kStaged;
      uvec4 low = staged[at + 2 * b], high = staged[at + 2 * b + 1];
      float scale = staged_float(at + 16, b);
      [[unroll]] for (uint t = 0; t < TILES; ++t) {
        uint i = m * TILES + t;
        sum[i] = fma(float(block_dot(block[t], low, high)), block[t].scale * scale, sum[i]);
        if (kHasMinimum) sum[i] = fma(-block[t].minimum, staged_float(at + 18, b), sum[i]);
      }
    }
  }
}

// Tiles tile0 .. of `rows` rows from m0 on; `waits`: for the phase before.
void multiply_tiles(uint tile0, uint m0, uint rows, bool waits) {
  uint k_part = gl_WorkGroupID.y % SPLIT_K;
  uint thread = gl_LocalInvocationIndex % kSetThreads, set = gl_LocalInvocationIndex / kSetThreads;
  uint lane = thread % 32, team = thread / 32;
  uint last_tile = (n_dim - 1) / 32;
  uint units = (k_dim + kUnit - 1) / kUnit;
  uint begin = units * k_part / SPLIT_K, end = units * (k_part + 1) / SPLIT_K;
  uint own_end = tile0 <= last_tile ? end : begin;  // a set may have no tiles left
  float sum[kSums];  // row m, tile t at m * TILES + t
  [[unroll]] for (uint i = 0; i < kSums; ++i) sum[i] = 0.0;
  for (uint first = begin; first < end; first += kTeams) {
    uint u = first + team;
    uint to = (NORM_UNITS > 0 ? u : (set * kTeams + team) * ROWS) * kStaged;
    Unit w[TILES];
    if (u < own_end) {
      [[unroll]] for (uint t = 0; t < TILES; ++t) {
        uint tile = min(tile0 + t, last_tile);
        load_scales(w[t], plane, tile, u, k_dim, lane);
        load_quants(w[t], plane, tile, u, k_dim, lane, 0, PARTS);
      }
    }
    if (waits && first == begin) {
      if (NORM_UNITS > 0) touch_norm_weights();
      await_phase();
      if (NORM_UNITS > 0) stage_normed();
    }
    if (NORM_UNITS == 0 && u < own_end) {
      if (kIsFloat) {
        stage_floats(to, m0, rows, u, lane);
      } else if (X_FORMAT == kActivationInt8) {
        stage_blocks(to, m0, rows, u, lane);
      } else {
        stage_quantized(to, m0, rows, u, lane);
      }
    }
    if (NORM_UNITS == 0) team_barrier();
    if (kHasMinimum && NORM_UNITS == 0) {
      if (u < own_end) stage_sums(to, lane);
      team_barrier();
    }
    if (u < own_end) {
      [[unroll]] for (uint part = 0; part < PARTS; ++part) {
        if (kIsFloat) {
          add_floats(sum, w, to, part);
        } else {
          add_blocks(sum, w, to, part);
        }
        [[unroll]] for (uint t = 0; t < TILES; ++t) {
          if (part + 1 == PARTS) break;
          load_quants(w[t], plane, min(tile0 + t, last_tile), u, k_dim, lane, part + 1, PARTS);
        }
      }
    }
    if (NORM_UNITS == 0) team_barrier();
  }

  [[unroll]] for (uint first = 0; first < kSums; first += kAtOnce) {
    if (first > 0) barrier();
    [[unroll]] for (uint i = 0; i < kAtOnce; ++i) sums[i * THREADS + set * kSetThreads + thread] = sum[first + i];
    barrier();
    for (uint at = thread; at < kAtOnce * 32; at += kSetThreads) {
      uint i = at / 32, row = (first + i) / TILES, tile = tile0 + (first + i) % TILES;
      float total = 0.0;
      for (uint j = 0; j < kTeams; ++j) total += sums[i * THREADS + set * kSetThreads + j * 32 + lane];
      if (GEGLU) {
        float other = subgroupShuffleXor(total, 1);
        if ((lane & 1) == 0) columns[set * kAtOnce * 16 + at / 2] = gelu_tanh(total) * other;
      } else if (row < rows && tile * 32 + lane < n_dim) {
        uint64_t element = uint64_t(k_part) * split_stride + uint64_t(m0 + row) * out_stride;
        Float(destination + (element + out_column + tile * 32 + lane) * 4).v = total;
      }
    }
    if (!GEGLU) continue;
    barrier();
    uint i = thread / 4;  // 16 columns of a row and tile each, four a thread
    uint row = (first + i) / TILES, column = (tile0 + (first + i) % TILES) * 16 + thread % 4 * 4;
    bool valid = i < kAtOnce && row < rows && column < n_dim / 2;
    vec4 v = vec4(0.0);
    if (valid) {
      uint at = set * kAtOnce * 16 + thread * 4;
      v = vec4(columns[at], columns[at + 1], columns[at + 2], columns[at + 3]);
    }
    if (OUT_FORMAT == kActivationF16) v /= kGegluHalfScale;
    uint64_t to_row = activation_row(destination, OUT_FORMAT, out_stride, m0 + row);
    store_activation(OUT_FORMAT, to_row, out_column + column, v, valid);
  }
}

void main() {
  uint rows = load_uint(count);
  uint m0 = gl_WorkGroupID.y / SPLIT_K * ROWS + first_row;
  if (m0 >= rows) {
    skip_phase();
    return;
  }
  rows = min(rows - m0, ROWS);
  m0 -= first_row;
  prepare_weights(gl_LocalInvocationIndex, THREADS);
  uint set = gl_LocalInvocationIndex / kSetThreads;
  for (uint group = gl_WorkGroupID.x; group * SETS * TILES * 32 < n_dim;
       group += gl_NumWorkGroups.x) {
    if (group != gl_WorkGroupID.x) barrier();
    multiply_tiles((group * SETS + set) * TILES, m0, rows, group == gl_WorkGroupID.x);
  }
  end_phase();
}
