// The input's part of a chunk in shared memory, k in the order of coop_weights.glsl: row r of the
// tile lies at r * X_STRIDE, step s at + 2 s, its eight lower and eight upper k a uvec4 each, and in
// them the pairs of the four quarters of lanes.
#ifndef TANDEM_COOP_INPUT_GLSL
#define TANDEM_COOP_INPUT_GLSL

// A job is a row's pieces y of the four quarters: four pieces of eight elements in, four out.
const uint X_JOBS_OF_ROW = CHUNK / 32;
const uint X_JOBS = ROWS * X_JOBS_OF_ROW;
const uint X_TURNS = (X_JOBS + THREADS - 1) / THREADS;
const uint X_WORDS = X_TURNS * 4;

// Where this thread's jobs begin in chunk 0.  Rows beyond the last are copies of it.
void input_addresses(uint64_t x, uint first_row, uint last_row, uint k_dim,
                     out uint64_t from[X_TURNS]) {
  [[unroll]] for (uint i = 0; i < X_TURNS; ++i) {
    uint job = gl_LocalInvocationIndex + i * THREADS;
    uint row = min(first_row + min(job / X_JOBS_OF_ROW, ROWS - 1), last_row);
    from[i] = x + uint64_t(row) * (k_dim * 2) + job % X_JOBS_OF_ROW * (CHUNK == 128 ? 16 : 32);
  }
}

// First elements of quarters t in a job, in a chunk.
uint piece_start(uint t) { return CHUNK == 128 ? 32 * t : 32 * (t / 2) + 8 * (t % 2); }

// What lies beyond k_dim is zero.
void load_input(uint64_t from[X_TURNS], uint chunk, uint k_dim, out uvec4 held[X_WORDS]) {
  if ((chunk + 1) * CHUNK <= k_dim) {
    [[unroll]] for (uint i = 0; i < X_TURNS; ++i) {
      uint64_t at = from[i] + uint64_t(chunk) * (CHUNK * 2);
      [[unroll]] for (uint t = 0; t < 4; ++t) {
        held[4 * i + t] = load_uvec4(at + uint64_t(piece_start(t) * 2));
      }
    }
    return;
  }
  [[unroll]] for (uint i = 0; i < X_TURNS; ++i) {
    uint y = (gl_LocalInvocationIndex + i * THREADS) % X_JOBS_OF_ROW;
    [[unroll]] for (uint t = 0; t < 4; ++t) {
      uint k = chunk * CHUNK + piece_start(t);
      held[4 * i + t] = uvec4(0);
      if (k + y * (CHUNK == 128 ? 8 : 16) < k_dim) held[4 * i + t] = load_uvec4(from[i] + k * 2);
    }
  }
}

// A pair of elements as float16.
uint input_halves(uint pair) {
  return X_FORMAT == kActivationBf16 ? bf16_as_halves(pair) : pair;
}

// Word of quarter t: pair h of the four elements of a step, words a and b.
uint input_pair(uint a, uint b, uint h) {
  if (HALVES) return h == 0 ? a : b;
  return h == 0 ? (a & 0xFFFFu) | (b << 16) : (a >> 16) | (b & 0xFFFF0000u);
}

void store_input(uvec4 held[X_WORDS], uint turn) {
  [[unroll]] for (uint i = 0; i < X_TURNS; ++i) {
    uint job = gl_LocalInvocationIndex + i * THREADS;
    if (X_JOBS % THREADS != 0 && job >= X_JOBS) return;
    uint y = job % X_JOBS_OF_ROW;
    uint to = turn * ROWS * X_STRIDE + job / X_JOBS_OF_ROW * X_STRIDE;
    [[unroll]] for (uint j = 0; j < 2; ++j) {  // each half of a piece belongs to a step
      uint s = CHUNK == 128 ? 2 * (2 * (y % 2) + j) + y / 2 : 2 * j + y;
      [[unroll]] for (uint h = 0; h < 2; ++h) {
        uvec4 v;
        [[unroll]] for (uint t = 0; t < 4; ++t) {
          v[t] = input_pair(input_halves(held[4 * i + t][2 * j]),
                            input_halves(held[4 * i + t][2 * j + 1]), h);
        }
        shared_words[to + 2 * s + h] = v;
      }
    }
  }
}
#endif
