// As matvec.comp, for several rows of x, on int8 matrix units (byte_matrix.glsl).
// A thread loads and unpacks its row of w as there; the int8 blocks then go to a team's
// matrices through shared memory.  A block of 32 columns is one step of the matrices, so that its sum
// is exact; it becomes float32 there and is scaled by the block's two scales.  The weights' scales
// reach the lanes that have the sums with each block or, with UNIT_SCALES, once a unit: fewer
// accesses and registers where a team has several tiles and blocks at once.
//
// Teams, units, parts of k and the order of sums are those of matvec.comp.
#version 460
#extension GL_GOOGLE_include_directive : require
#ifdef EMULATED  // a fraction of the time to compile
#define unroll dont_unroll
#endif
#extension GL_KHR_memory_scope_semantics : require
#include "activation.glsl"
#include "geglu.glsl"
#include "unit_weights.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 32;
layout(constant_id = 5) const uint ROWS = 8;   // a multiple of 8
layout(constant_id = 6) const uint TILES = 1;  // even with GEGLU
layout(constant_id = 7) const uint SPLIT_K = 1;
layout(constant_id = 8) const uint X_FORMAT = 2;
layout(constant_id = 9) const bool GEGLU = false;
layout(constant_id = 10) const uint OUT_FORMAT = 0;  // with GEGLU
layout(constant_id = 11) const uint LANES = 32;      // the subgroup's size
layout(constant_id = 12) const uint PARTS = 1;       // of a unit's weights, loaded one by one: 1, 2, 4
layout(constant_id = 13) const uint BATCH = 1;       // blocks that go through shared memory at once
layout(constant_id = 14) const bool UNIT_SCALES = false;  // BATCH is even
#include "push/matvec.glsl"

const uint kTeams = THREADS / 32;
const uint kStaged = 19;  // of a row and unit: 16 of elements, 2 of scales, 1 against bank conflicts
// A row's blocks: 2 of elements each, and 1 that begins with the block's scale, or after all blocks 1
// against bank conflicts.
const uint kLine = UNIT_SCALES ? 2 * BATCH + 1 : 3;
const uint kNextBlock = UNIT_SCALES ? 2 : 32 * kLine;
const uint kTeamLines = UNIT_SCALES ? 32 * kLine : BATCH * 32 * kLine;
const uint kRowTiles = ROWS / 8;
const uint kPartBlocks = 8 / PARTS;
const uint kXFours = (kPartBlocks + 3) / 4;  // pieces of x's scales of a row and part
const uint kSums = TILES * 2 * kRowTiles * 4;  // of a lane
// Later the teams' sums of a tile: 32 float32 a row.
shared uvec4 staged[kTeams * ROWS * kStaged];
shared uvec4 lines[kTeams * kTeamLines];
shared uvec4 unit_scales[UNIT_SCALES ? kTeams * TILES * 32 : 1];  // eight float16 a row

void team_barrier() {
  if (LANES < 32) {
    barrier();
  } else {
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
  }
}

#include "staged_blocks.glsl"
uvec4 load_input(uint64_t address) { return load_uvec4(address); }
#include "byte_matrix.glsl"

float staged_float(uint piece, uint i) { return uintBitsToFloat(staged[piece + i / 4][i % 4]); }
float line_scale(uint line) { return uintBitsToFloat(lines[line + 2].x); }

// Puts blocks b .. b + BATCH - 1 of the lane's row into `lines`.
void put_blocks(Unit w, uint to_lines, uint b, uint lane) {
  [[unroll]] for (uint i = 0; i < BATCH; ++i) {
    Block block = unpack_block(w, b + i);
    uint line = to_lines + i * kNextBlock + lane * kLine;
    lines[line] = block.low;
    lines[line + 1] = block.high;
    if (!UNIT_SCALES) lines[line + 2].x = floatBitsToUint(block.scale);
  }
}

// Adds the products of part `part` of a unit.
void add_part(inout float sum[kSums], Unit w[TILES], uint team, uint part, uint lane,
              bool is_there) {
  uint to = team * ROWS * kStaged, to_lines = team * kTeamLines;
  vec4 x_scales[kRowTiles * 2 * kXFours];  // of the lane's two rows each
  if (UNIT_SCALES) {
    if (part == 0) team_barrier();
    [[unroll]] for (uint i = 0; i < kRowTiles * 2 * kXFours; ++i) {
      uint row = i / kXFours / 2 * 8 + lane % 4 * 2 + i / kXFours % 2;
      uint four = part * kPartBlocks / 4 + i % kXFours;
      x_scales[i] = uintBitsToFloat(staged[to + row * kStaged + 16 + four]);
    }
  }
  [[unroll]] for (uint first = 0; first < kPartBlocks; first += BATCH) {
    [[unroll]] for (uint t = 0; t < TILES; ++t) {
      uint pairs[4 * ((BATCH + 1) / 2)];  // scales of two blocks each, of rows lane / 4 + 8 r
      [[unroll]] for (uint i = 0; i < 2 * BATCH; ++i) {
        if (!UNIT_SCALES) break;
        uint row = (team * TILES + t) * 32 + lane / 4 + 8 * (i % 4);
        pairs[i] = unit_scales[row][(part * kPartBlocks + first) / 2 + i / 4];
      }
      put_blocks(w[t], to_lines, part * kPartBlocks + first, lane);
      team_barrier();
      [[unroll]] for (uint i = 0; i < BATCH; ++i) {
        uint b = part * kPartBlocks + first + i, line = to_lines + i * kNextBlock;
        ByteMatrixA a[2];
        vec2 scale[2];
        [[unroll]] for (uint h = 0; h < 2; ++h) {
          LOAD_BYTES_A(a[h], line + h * 16 * kLine, kLine);
          uint row = h * 16 + lane / 4;
          if (UNIT_SCALES) {
            scale[h] = vec2(unpackHalf2x16(pairs[i / 2 * 4 + 2 * h])[i % 2],
                            unpackHalf2x16(pairs[i / 2 * 4 + 2 * h + 1])[i % 2]);
          } else {
            scale[h] = vec2(line_scale(line + row * kLine), line_scale(line + (row + 8) * kLine));
          }
        }
        [[unroll]] for (uint j = 0; j < kRowTiles; ++j) {
          ByteMatrixB x_block;
          uint at = to + j * 8 * kStaged, own = at + lane % 4 * 2 * kStaged + 16;
          LOAD_BYTES_B(x_block, at + 2 * b, kStaged);
          vec2 x_scale = vec2(0.0);
          if (UNIT_SCALES) {
            uint four = j * 2 * kXFours + (first + i) / 4, e = PARTS == 4 ? b % 4 : (first + i) % 4;
            x_scale = vec2(x_scales[four][e], x_scales[four + kXFours][e]);
          } else {
            x_scale = vec2(staged_float(own, b), staged_float(own + kStaged, b));
          }
          [[unroll]] for (uint h = 0; h < 2; ++h) {
            ByteSums c;
            MULTIPLY_BYTES(c, a[h], x_block);
            if (!is_there) continue;
            [[unroll]] for (uint e = 0; e < 4; ++e) {
              uint s = ((t * 2 + h) * kRowTiles + j) * 4 + e;
              sum[s] = fma(BYTE_SUM(c, e), scale[h][e / 2] * x_scale[e % 2], sum[s]);
            }
          }
        }
      }
      team_barrier();
    }
  }
}

// Products [row, column .. column + 3] of this shard, those that exist.
void store_sums(uint k_part, uint row, uint column, vec4 v) {
  uint64_t element =
      uint64_t(k_part) * split_stride + uint64_t(row) * out_stride + out_column + column;
  uint64_t to = destination + element * 4;
  if (column + 4 <= n_dim && (to & 15) == 0) {
    store_vec4(to, v);
  } else {
    for (uint e = 0; e < 4 && column + e < n_dim; ++e) Float(to + e * 4).v = v[e];
  }
}

// Columns 4 four .. +3 of all tiles, in row m.
vec4 teams_sum(uint m, uint four) {
  vec4 total = vec4(0.0);
  for (uint j = 0; j < kTeams; ++j) {
    total += uintBitsToFloat(staged[(j * ROWS + m) * kStaged + four]);
  }
  return total;
}

void main() {
  uint rows = load_uint(count);
  uint m0 = gl_WorkGroupID.y / SPLIT_K * ROWS + first_row;
  if (m0 >= rows) return;
  rows = min(rows - m0, ROWS);
  m0 -= first_row;
  uint k_part = gl_WorkGroupID.y % SPLIT_K;
  uint thread = gl_LocalInvocationIndex, lane = thread % 32, team = thread / 32;
  uint tile0 = gl_WorkGroupID.x * TILES, last_tile = (n_dim - 1) / 32;
  uint units = (k_dim + 255) / 256;
  uint begin = units * k_part / SPLIT_K, end = units * (k_part + 1) / SPLIT_K;
  uint to = team * ROWS * kStaged;
  prepare_weights(thread, THREADS);

  float sum[kSums];  // of half h of tile t and rows j: 4 ((2 t + h) * kRowTiles + j), a lane's elements
  [[unroll]] for (uint i = 0; i < kSums; ++i) sum[i] = 0.0;
  for (uint first = begin; first < end; first += kTeams) {
    uint u = min(first + team, end - 1);
    bool is_there = first + team < end;
    Unit w[TILES];
    if (is_there || LANES < 32) {  // barriers want all teams there
      [[unroll]] for (uint t = 0; t < TILES; ++t) {
        uint tile = min(tile0 + t, last_tile);
        load_scales(w[t], plane, tile, u, k_dim, lane);
        load_quants(w[t], plane, tile, u, k_dim, lane, 0, PARTS);
        if (UNIT_SCALES) unit_scales[(team * TILES + t) * 32 + lane] = w[t].scales;
      }
      if (X_FORMAT == kActivationInt8) {
        stage_blocks(to, m0, rows, u, lane);
      } else {
        stage_quantized(to, m0, rows, u, lane);
      }
      [[unroll]] for (uint part = 0; part < PARTS; ++part) {
        add_part(sum, w, team, part, lane, is_there);
        [[unroll]] for (uint t = 0; t < TILES; ++t) {
          if (part + 1 == PARTS) break;
          load_quants(w[t], plane, min(tile0 + t, last_tile), u, k_dim, lane, part + 1, PARTS);
        }
      }
    }
  }

  [[unroll]] for (uint s = 0; s < kSums; ++s) {
    uint e = s % 4, j = s / 4 % kRowTiles, th = s / (4 * kRowTiles);
    uint m = j * 8 + lane % 4 * 2 + e % 2, column = 16 * th + lane / 4 + 8 * (e / 2);
    staged[to + m * kStaged + column / 4][column % 4] = floatBitsToUint(sum[s]);
  }
  barrier();
  if (!GEGLU) {
    const uint kFours = 8 * TILES;
    for (uint at = thread; at < ROWS * kFours; at += THREADS) {
      uint m = at / kFours, four = at % kFours;
      if (m < rows) store_sums(k_part, m0 + m, tile0 * 32 + four * 4, teams_sum(m, four));
    }
    return;
  }
  const uint kEights = 4 * TILES;  // each four outputs
  for (uint first = 0; first < ROWS * kEights; first += THREADS) {
    uint m = (first + thread) / kEights, eight = (first + thread) % kEights;
    uint column = tile0 * 16 + eight * 4;
    bool valid = m < rows && column < n_dim / 2;
    vec4 v = vec4(0.0);
    if (valid) {
      vec4 a = teams_sum(m, eight * 2), b = teams_sum(m, eight * 2 + 1);
      v = vec4(gelu_tanh(a.x) * a.y, gelu_tanh(a.z) * a.w, gelu_tanh(b.x) * b.y,
               gelu_tanh(b.z) * b.w);
    }
    if (OUT_FORMAT == kActivationF16) v /= kGegluHalfScale;
    uint64_t to_row = destination + (m0 + m) * activation_row_bytes(OUT_FORMAT, out_stride);
    store_activation(OUT_FORMAT, to_row, out_column + column, v, valid);
  }
}
