// As matvec.comp, for several rows of x, on matrices of eight columns (coop.glsl): a step of 16 columns
// of w by eight rows of x.
//
// A subgroup is a team.  It has a tile of 32 rows of w, which go from memory to registers and become
// float16 there, and walks over chunks of 128 columns.  A lane loads its own part of x as well, which
// the caches give to all subgroups: nothing is shared before the end, so teams never wait.  The teams
// of a workgroup share the chunks of its part of k, team t taking chunks t, t + teams, ...; their sums
// are added in order.  The SPLIT_K parts of k write partial sums, which the consumer adds in order.
// So a row's result depends on k's division alone, not on ROWS or the rows beside it.
//
// Grid: x tiles, y parts of k times passes over ROWS.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "activation.glsl"
#include "geglu.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 32;
layout(constant_id = 4) const bool WHOLE_CHUNKS = true;  // the columns are a multiple of 128
layout(constant_id = 5) const uint ROWS = 8;             // a multiple of 8
layout(constant_id = 7) const uint SPLIT_K = 1;
layout(constant_id = 8) const uint X_FORMAT = 3;  // kActivationFragments, kActivationF16 or kActivationBf16
layout(constant_id = 9) const bool GEGLU = false;
layout(constant_id = 12) const uint OUT_FORMAT = 0;  // with GEGLU
#include "push/matvec.glsl"

const uint CHUNK = kFragmentElements, SUBGROUPS = THREADS / 32;
const uint kRowTiles = ROWS / 8;
const uint kSums = 2 * kRowTiles;    // matrices of a team
const uint kPieces = 4 * kRowTiles;  // of x, of a lane and chunk
const uint kLine = 9;  // of a row of sums: 8 uvec4, and 1 against bank conflicts
shared uvec4 staged[SUBGROUPS * ROWS * kLine];

#define B_COLUMNS 8
#define HELD_B
#include "coop.glsl"
#include "coop_weights.glsl"

#ifdef EMULATED  // a fraction of the time to compile; and barriers want all teams there
#define UNROLL_STEPS [[dont_unroll]]
const bool kAllTeams = true;
#else
#define UNROLL_STEPS [[unroll]]
const bool kAllTeams = false;
#endif

// The lane's pieces of the eight rows from `row` on.  Rows beyond the last repeat one.
uint64_t lane_pieces(uint row, uint last_row) {
  if (X_FORMAT == kActivationFragments) {
    return activation_row(x, X_FORMAT, k_dim, min(row, last_row & ~7u)) + lane_id() * 16;
  }
  return activation_row(x, X_FORMAT, k_dim, min(row + lane_row(), last_row)) + lane_quarter() * 64;
}

// Piece q of a chunk: the pairs of step 2 q, then those of step 2 q + 1.
uvec4 load_piece(uint64_t pieces, uint chunk, uint q) {
  if (X_FORMAT == kActivationFragments) {
    return load_uvec4(pieces + chunk * (8 * CHUNK * 2) + q * 512);
  }
  uint64_t at = pieces + chunk * (CHUNK * 2) + q * 8;
  uvec4 bits = uvec4(unpack32(Long(at).v), unpack32(Long(at + 32).v));
  if (X_FORMAT == kActivationBf16) {
    [[unroll]] for (uint i = 0; i < 4; ++i) bits[i] = bf16_as_halves(bits[i]);
  }
  return uvec4(fragment_pairs(bits.xy), fragment_pairs(bits.zw));
}

MatrixB step_of(uvec4 piece, uint h) {
  uvec2 pairs = h == 0 ? piece.xy : piece.zw;
  if (HALVES) pairs = fragment_pairs(pairs);  // their pairs are neighbours
  return make_b(halves(pairs.x), halves(pairs.y));
}

// Adds the products of a chunk.
void add_chunk(uint raw[4][ROW_WORDS], uint odd, uvec4 held[kPieces], inout MatrixC sum[kSums]) {
  f16vec2 scale[4];
  [[unroll]] for (uint r = 0; r < 4; ++r) scale[r] = row_scale(raw[r], odd);
  UNROLL_STEPS for (uint s = 0; s < CHUNK / 16; ++s) {
    MatrixB b[kRowTiles];
    [[unroll]] for (uint j = 0; j < kRowTiles; ++j) b[j] = step_of(held[j * 4 + s / 2], s % 2);
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      f16vec2 pair[LANE_PAIRS];
      [[unroll]] for (uint p = 0; p < LANE_PAIRS; ++p) {
        uint r = 2 * i + p / 2;
        pair[p] = weight_pair(raw[r], scale[r], 0, s / 2, s % 2, p % 2);
      }
      MatrixA a = make_a(pair);
      [[unroll]] for (uint j = 0; j < kRowTiles; ++j) MULTIPLY_ADD(a, b[j], sum[i * kRowTiles + j]);
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

// Columns 4 four .. +3 of the tile, in row m.
vec4 teams_sum(uint m, uint four) {
  vec4 total = vec4(0.0);
  for (uint team = 0; team < SUBGROUPS; ++team) {
    total += uintBitsToFloat(staged[(team * ROWS + m) * kLine + four]);
  }
  return total * x_scale;
}

void main() {
  uint rows = load_uint(count);
  uint m0 = gl_WorkGroupID.y / SPLIT_K * ROWS + first_row;
  if (m0 >= rows) return;
  rows = min(rows - m0, ROWS);
  m0 -= first_row;
  uint k_part = gl_WorkGroupID.y % SPLIT_K;
  uint thread = gl_LocalInvocationIndex, tile = gl_WorkGroupID.x;
  uint blocks = k_dim / 32, chunks = (k_dim + CHUNK - 1) / CHUNK;
  uint begin = chunks * k_part / SPLIT_K, end = chunks * (k_part + 1) / SPLIT_K;
  prepare_weights();
  if (WEIGHT_DTYPE == kIq4Nl) barrier();

  LaneAddress weights = lane_address(plane, tile, lane_row(), k_dim);
  uint64_t pieces[kRowTiles];
  [[unroll]] for (uint j = 0; j < kRowTiles; ++j) {
    pieces[j] = lane_pieces(m0 + j * 8, m0 + rows - 1);
  }
  MatrixC sum[kSums];  // of half i of the tile and rows j: i * kRowTiles + j
  [[unroll]] for (uint i = 0; i < kSums; ++i) sum[i] = ZERO_C;
  for (uint first = begin; first < end; first += SUBGROUPS) {
    bool is_there = first + subgroup_id() < end;
    if (!is_there && !kAllTeams) break;
    uint chunk = min(first + subgroup_id(), end - 1);
    // Blocks beyond the last repeat it, and meet zeros.
    uint wanted = chunk * (CHUNK / 32) + lane_block(lane_quarter()), block = min(wanted, blocks - 1);
    LaneAddress at = block_address(weights, block, 0);
    uint raw[4][ROW_WORDS];
    [[unroll]] for (uint r = 0; r < 4; ++r) load_row(at, 8 * r, raw[r]);
    bool has_x = (WHOLE_CHUNKS || wanted < blocks) && (is_there || !kAllTeams);
    uvec4 held[kPieces];
    [[unroll]] for (uint i = 0; i < kPieces; ++i) {
      held[i] = has_x ? load_piece(pieces[i / 4], chunk, i % 4) : uvec4(0);
    }
    add_chunk(raw, lane_block(lane_quarter()) % 2, held, sum);
  }

  [[unroll]] for (uint s = 0; s < kSums; ++s) {
    [[unroll]] for (uint e = 0; e < C_ELEMENTS; ++e) {
      uint m = s % kRowTiles * 8 + lane_quarter() * 2 + e % 2;
      uint column = s / kRowTiles * 16 + lane_row() + e / 2 * 8;
      uint line = (subgroup_id() * ROWS + m) * kLine;
      staged[line + column / 4][column % 4] = floatBitsToUint(C_ELEMENT(sum[s], e));
    }
  }
  barrier();
  if (!GEGLU) {
    for (uint at = thread; at < ROWS * 8; at += THREADS) {
      uint m = at / 8, four = at % 8;
      if (m < rows) store_sums(k_part, m0 + m, tile * 32 + four * 4, teams_sum(m, four));
    }
    return;
  }
  for (uint first = 0; first < ROWS * 4; first += THREADS) {  // each four outputs
    uint m = (first + thread) / 4, eight = (first + thread) % 4;
    uint column = tile * 16 + eight * 4;
    bool valid = m < rows && column < n_dim / 2;
    vec4 v = vec4(0.0);
    if (valid) {
      vec4 a = teams_sum(m, eight * 2), b = teams_sum(m, eight * 2 + 1);
      v = vec4(gelu_tanh(a.x) * a.y, gelu_tanh(a.z) * a.w, gelu_tanh(b.x) * b.y,
               gelu_tanh(b.z) * b.w);
    }
    if (OUT_FORMAT != kActivationF32) v /= kGegluHalfScale;
    uint64_t to_row = activation_row(destination, OUT_FORMAT, out_stride, m0 + m);
    store_activation(OUT_FORMAT, to_row, out_column + column, v, valid);
  }
}
