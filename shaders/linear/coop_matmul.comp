// out[r, c] = x_scale * sum_k x[r, k] * w[c, k], or with GEGLU
// out[r, i] = gelu_tanh(gate) * up, gate and up the products of w's rows 2i and 2i + 1;
// for many rows of x, on cooperative matrices (coop.glsl).
//
// A workgroup makes ROWS rows of x by SUBGROUPS * COLUMNS rows of w.  Its subgroups share the tile of
// x, twice in shared memory: one is read while the next arrives.  Each has rows of w of its own,
// which go from memory to registers, become float16 there and never enter shared memory.  Memory is
// read a chunk before it is needed.
//
// Where tiles are too few to fill the device, and in those that are left when it has been full some
// times, workgroups share a tile, each with a part of k (tile_splits.glsl).  They leave their sums in
// `workspace`; the last to arrive adds them, in order of k.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint COLUMNS = 32;  // of a subgroup: 16, 32 or 64
layout(constant_id = 5) const uint ROWS = 32;     // a multiple of 16
layout(constant_id = 6) const uint SUBGROUPS = 4;
layout(constant_id = 7) const uint CHUNK = 64;
layout(constant_id = 8) const uint OUTPUT = 0;    // see coop_output.glsl
layout(constant_id = 9) const uint X_FORMAT = 1;  // kActivationF16, or kActivationBf16
#include "push/coop_matmul.glsl"

const uint THREADS = SUBGROUPS * 32;
const uint X_STRIDE = CHUNK / 8 + 1;  // one more against bank conflicts
const uint C_STRIDE = 5;
const uint X_TILE = 2 * ROWS * X_STRIDE, C_TILES = SUBGROUPS * 16 * C_STRIDE;
shared uvec4 shared_words[X_TILE > C_TILES ? X_TILE : C_TILES];

#include "coop.glsl"
#include "coop_weights.glsl"
#include "coop_input.glsl"

const uint A_TILES = COLUMNS / 16, B_TILES = ROWS / 16, STEPS = CHUNK / 16;
#ifdef EMULATED  // a sixth of the time to compile
#define UNROLL_STEPS [[dont_unroll]]
#else
#define UNROLL_STEPS [[unroll]]
#endif
const uint SUMS = A_TILES * B_TILES, LANE_BLOCKS = LANE_ROWS * LANE_QUARTERS;

#include "coop_output.glsl"

#define TILE_SPLITS_FUNCTION
#include "tile_splits.glsl"

// What a lane holds of its weights' rows in a chunk, as it comes from memory.
const uint RAW_ROWS = A_TILES * LANE_BLOCKS;

// Requests a chunk of the lane's `weights`; blocks beyond the last repeat it, and meet zeros.
#define LOAD_CHUNK(chunk, raw)                                                                   \
  [[unroll]] for (uint u = 0; u < LANE_QUARTERS; ++u) {                                          \
    uint t = lane_quarter() + u;                                                                 \
    uint block = min((chunk) * (CHUNK / 32) + lane_block(t), blocks - 1);                        \
    [[unroll]] for (uint i = 0; i < A_TILES; ++i) {                                              \
      LaneAddress at = block_address(weights[i / 2], block, lane_part(t));                       \
      [[unroll]] for (uint r = 0; r < LANE_ROWS; ++r) {                                          \
        load_row(at, 16 * (i % 2) + 8 * r, (raw)[(i * LANE_ROWS + r) * LANE_QUARTERS + u]);      \
      }                                                                                          \
    }                                                                                            \
  }

// Adds a chunk's products with the input's tile `turn`.
void multiply_chunk(uint raw[RAW_ROWS][ROW_WORDS], uint turn, inout MatrixC sum[SUMS]) {
  f16vec2 scale[RAW_ROWS];
  [[unroll]] for (uint i = 0; i < RAW_ROWS; ++i) {
    scale[i] = row_scale(raw[i], lane_block(lane_quarter() + i % LANE_QUARTERS) % 2);
  }
  UNROLL_STEPS for (uint s = 0; s < STEPS; ++s) {
    MatrixA a[A_TILES];
    [[unroll]] for (uint i = 0; i < A_TILES; ++i) {
      f16vec2 pair[LANE_PAIRS];
      [[unroll]] for (uint p = 0; p < LANE_PAIRS; ++p) {
        uint b = i * LANE_BLOCKS + p / 2;
        uint part = lane_part(lane_quarter() + p / 2 % LANE_QUARTERS);
        pair[p] = weight_pair(raw[b], scale[b], part, s / 2, s % 2, p % 2);
      }
      a[i] = make_a(pair);
    }
    [[unroll]] for (uint j = 0; j < B_TILES; ++j) {
      MatrixB b;
      LOAD_B(b, (turn * ROWS + j * 16) * X_STRIDE + 2 * s, X_STRIDE);
      [[unroll]] for (uint i = 0; i < A_TILES; ++i) {
        MULTIPLY_ADD(a[i], b, sum[i * B_TILES + j]);
      }
    }
  }
}

void main() {
  uint rows = load_uint(count);
  rows = rows > first_row ? rows - first_row : 0;
  if (rows == 0) return;
  // A recording can be of fewer rows than there are: other launches make the others.
  uint row_tiles = min((rows + ROWS - 1) / ROWS, gl_NumWorkGroups.x);
  uint column_tiles = (n_dim + SUBGROUPS * COLUMNS - 1) / (SUBGROUPS * COLUMNS);
  TileSplits splits = split_tiles(row_tiles, column_tiles, groups, most_parts, fit);
  uint work = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  uint row_tile = work % row_tiles, column_tile = work / row_tiles, parts = 1, split = 0;
  if (column_tile >= splits.whole) {
    parts = splits.parts;
    split = (column_tile - splits.whole) % parts;
    column_tile = splits.whole + (column_tile - splits.whole) / parts;
  }
  if (column_tile >= column_tiles) return;
  uint row0 = row_tile * ROWS;
  uint column0 = (column_tile * SUBGROUPS + subgroup_id()) * COLUMNS;
  prepare_weights();

  uint blocks = k_dim / 32, chunks = (k_dim + CHUNK - 1) / CHUNK;
  uint first_chunk = chunks * split / parts;
  int num_chunks = int(chunks * (split + 1) / parts - first_chunk);

  // Columns beyond the last tile repeat it; their outputs are not stored.
  uint last_tile = (n_dim - 1) / kTileRows;
  uint row_of_tile = lane_row() + (A_TILES == 1 ? column0 % kTileRows : 0);
  LaneAddress weights[(A_TILES + 1) / 2];
  [[unroll]] for (uint i = 0; i < A_TILES; i += 2) {
    uint tile = min(column0 / kTileRows + i / 2, last_tile);
    weights[i / 2] = lane_address(plane, tile, row_of_tile, k_dim);
  }
  uint64_t input_at[X_TURNS];
  input_addresses(x, row0, rows - 1, k_dim, input_at);

  MatrixC sum[SUMS];
  [[unroll]] for (uint i = 0; i < SUMS; ++i) sum[i] = ZERO_C;
  uint raw[RAW_ROWS][ROW_WORDS], next_raw[RAW_ROWS][ROW_WORDS];
  uvec4 held[X_WORDS];
  for (int c = -1; c < num_chunks; ++c) {
    bool next = c + 1 < num_chunks;
    uint chunk = first_chunk + uint(next ? c + 1 : c);
    LOAD_CHUNK(chunk, next_raw)
    if (next) load_input(input_at, chunk, k_dim, held);
    if (c >= 0) multiply_chunk(raw, uint(c) & 1, sum);
    if (next) store_input(held, uint(c + 1) & 1);
    [[unroll]] for (uint i = 0; i < RAW_ROWS; ++i) {
      [[unroll]] for (uint w = 0; w < ROW_WORDS; ++w) raw[i][w] = next_raw[i][w];
    }
    barrier();
  }

  if (parts > 1) {
    uint tile = (column_tile - splits.whole) * row_tiles + row_tile;
    if (!add_splits(sum, tile, split, parts)) return;
  }
  store_output(sum, row0, rows, column0);
}
