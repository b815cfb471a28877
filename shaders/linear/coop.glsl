// Multiplication of matrices by a subgroup of 32: C[c, r] += sum_k A[c, k] B[k, r], A 16 x 16 and B float16,
// C float32.  B and C have B_COLUMNS columns: 16, or 8.  Real ones (VK_KHR_cooperative_matrix), or with
// EMULATED the same interface in plain shared memory, so that a kernel is tested on a device that has
// none.
//
// Which element of A a lane holds is not specified, but does not change: coop_probe.comp looks.
// FRAGMENT_LAYOUT says how a lane may set its elements:
//   0  unknown: A goes through shared memory;
//   1  lane 4 g + t holds rows g and g + 8, of each columns 2t, 2t+1, 2t+8, 2t+9, in pairs: pair p
//      lies in row g + 8 where bit p of PAIR_ROWS is set, in the upper columns where bit p of
//      PAIR_HALVES is;
//   2  lanes g and g + 16 hold row g, its columns in order.  tiled_rows.comp also needs column g of C
//      in these lanes: its even rows in lane g, its odd rows in lane g + 16.
// With eight columns, layout 1 alone: lane 4 g + t holds column g of B, rows 2t, 2t+1, 2t+8, 2t+9, and
// of C columns 2t and 2t+1 of rows g and g + 8, in this order (coop_probe.comp looks, with NARROW).
#ifndef TANDEM_COOP_GLSL
#define TANDEM_COOP_GLSL
#extension GL_KHR_shader_subgroup_basic : require
#ifndef EMULATED
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#endif
#ifndef B_COLUMNS
#define B_COLUMNS 16
#endif

layout(constant_id = 10) const uint PAIR_ROWS = 12;
layout(constant_id = 11) const uint PAIR_HALVES = 10;
// Likewise for the pairs of a lane's elements of C, where a kernel asks where they stand.
layout(constant_id = 14) const uint SUM_PAIR_ROWS = 12;
layout(constant_id = 15) const uint SUM_PAIR_HALVES = 10;

// A lane gives rows g + 8 r for r < LANE_ROWS, and of each the pairs of columns 2 u + 8 h + {0, 1} for
// LANE_QUARTERS values of u (its own, or all four) and h < 2.  Elements: pair[(r * LANE_QUARTERS +
// u) * 2 + h].
#if FRAGMENT_LAYOUT == 2
const uint LANE_ROWS = 1, LANE_QUARTERS = 4, LANE_PAIRS = 8;
#else
const uint LANE_ROWS = 2, LANE_QUARTERS = 1, LANE_PAIRS = 4;
#endif
const uint C_ELEMENTS = B_COLUMNS / 2;  // of a lane

#ifdef EMULATED
uint lane_id() { return gl_LocalInvocationIndex & 31; }
uint subgroup_id() { return gl_LocalInvocationIndex >> 5; }
#define SUBGROUP_SYNC() barrier()
#else
uint lane_id() { return gl_SubgroupInvocationID; }
uint subgroup_id() { return gl_SubgroupID; }
#define SUBGROUP_SYNC() subgroupBarrier()
#endif
uint lane_row() { return FRAGMENT_LAYOUT == 2 ? lane_id() & 15 : lane_id() >> 2; }
uint lane_quarter() { return FRAGMENT_LAYOUT == 2 ? 0 : lane_id() & 3; }
// Element e of C lies in row lane_row() + 8 sum_half(e), layout 1.
uint sum_half(uint e) { return (SUM_PAIR_ROWS >> (e / 2)) & 1; }
uint sum_column_half(uint e) { return (SUM_PAIR_HALVES >> (e / 2)) & 1; }
uint sum_column(uint e) { return 8 * sum_column_half(e) + 2 * lane_quarter() + e % 2; }
// Element e of C lies in row sum_row(e), column lane_row(): layout 2.
uint sum_row(uint e) { return 2 * e + lane_id() / 16; }

// Shared memory is counted in uvec4.  `shared_words` is the kernel's: tiles of B, and C on its way out.
const uint A_STRIDE = 3;  // of a row of A: two and one against bank conflicts
#if FRAGMENT_LAYOUT == 0 || defined(EMULATED)
shared uvec4 shared_a[SUBGROUPS * 16 * A_STRIDE];
// Pair (row, quarter u, half h) of A: word u of half h of its row.
void put_a(f16vec2 pair[LANE_PAIRS]) {
  [[unroll]] for (uint p = 0; p < LANE_PAIRS; ++p) {
    uint h = p & 1, u = (p >> 1) % LANE_QUARTERS, r = (p >> 1) / LANE_QUARTERS;
    uint row = subgroup_id() * 16 + lane_row() + 8 * r;
    shared_a[row * A_STRIDE + h][lane_quarter() + u] = packFloat2x16(pair[p]);
  }
}
#endif

#ifndef HALF_OF_A  // a test of the tests swaps a row's halves
#define HALF_OF_A(h) (h)
#endif
#ifndef EMULATED
#define MatrixA coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define MatrixB coopmat<float16_t, gl_ScopeSubgroup, 16, B_COLUMNS, gl_MatrixUseB>
#define MatrixC coopmat<float, gl_ScopeSubgroup, 16, B_COLUMNS, gl_MatrixUseAccumulator>
#define ZERO_C MatrixC(0.0)
#define C_ELEMENT(c, e) (c)[e]
#define LOAD_B(b, at, stride) coopMatLoad(b, shared_words, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
// Row i of B at + i * stride; LOAD_B: its column.
#define LOAD_B_ROWS(b, at, stride) coopMatLoad(b, shared_words, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define MULTIPLY_ADD(a, b, c) c = coopMatMulAdd(a, b, c)
// C's columns, or rows, one after another.
#define STORE_C(c, at, stride) coopMatStore(c, shared_words, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define STORE_C_ROWS(c, at, stride) coopMatStore(c, shared_words, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define UNROLL_MATRICES [[unroll]]

MatrixA make_a(f16vec2 pair[LANE_PAIRS]) {
  MatrixA a;
#if FRAGMENT_LAYOUT == 0
  SUBGROUP_SYNC();
  put_a(pair);
  SUBGROUP_SYNC();
  coopMatLoad(a, shared_a, subgroup_id() * 16 * A_STRIDE, A_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
#elif FRAGMENT_LAYOUT == 1
  [[unroll]] for (uint p = 0; p < 4; ++p) {
    f16vec2 v = pair[((PAIR_ROWS >> p) & 1) * 2 + ((PAIR_HALVES >> p) & 1)];
    a[2 * p] = v.x;
    a[2 * p + 1] = v.y;
  }
#else
  [[unroll]] for (uint u = 0; u < 4; ++u) {
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      f16vec2 v = pair[u * 2 + h];
      a[8 * HALF_OF_A(h) + 2 * u] = v.x;
      a[8 * HALF_OF_A(h) + 2 * u + 1] = v.y;
    }
  }
#endif
  return a;
}
#if B_COLUMNS == 8
MatrixB make_b(f16vec2 low, f16vec2 high) {
  MatrixB b;
  b[0] = low.x;
  b[1] = low.y;
  b[2] = high.x;
  b[3] = high.y;
  return b;
}
#endif

#else  // EMULATED: the elements of a lane as a device of that layout has them
struct MatrixA {
  f16vec2 pair[LANE_PAIRS];  // in the lane's order
};
#ifdef HELD_B  // B in registers
#if B_COLUMNS == 8
struct MatrixB {
  f16vec2 low, high;
};
MatrixB make_b(f16vec2 low, f16vec2 high) { return MatrixB(low, high); }
#else  // layout 2: column g in lane g
struct MatrixB {
  uvec4 low, high;
};
#endif
shared uvec4 shared_b[SUBGROUPS * 16 * A_STRIDE];
#else
struct MatrixB {
  uint at, stride;  // where it lies
  bool is_rows;
};
#endif
struct MatrixC {
  float e[C_ELEMENTS];
};
#if B_COLUMNS == 8
#define ZERO_C MatrixC(float[4](0, 0, 0, 0))
#else
#define ZERO_C MatrixC(float[8](0, 0, 0, 0, 0, 0, 0, 0))
#endif
#define C_ELEMENT(c, i) (c).e[i]
#if !defined(HELD_B)
#define LOAD_B(b, where, by) b = MatrixB(where, by, false)
#define LOAD_B_ROWS(b, where, by) b = MatrixB(where, by, true)
#elif B_COLUMNS == 16
#define LOAD_B(b, where, by) \
  b = MatrixB(shared_words[(where) + lane_row() * (by)], shared_words[(where) + lane_row() * (by) + 1])
#endif
#define MULTIPLY_ADD(a, b, c) multiply_add(a, b, c)
#define STORE_C(c, at, stride) store_c(c, at, stride)
#define STORE_C_ROWS(c, at, stride) store_c_rows(c, at, stride)
#define UNROLL_MATRICES [[dont_unroll]]  // a fraction of the time to compile

MatrixA make_a(f16vec2 pair[LANE_PAIRS]) {
  MatrixA a;
#if FRAGMENT_LAYOUT == 1
  [[unroll]] for (uint p = 0; p < 4; ++p) {
    a.pair[p] = pair[((PAIR_ROWS >> p) & 1) * 2 + ((PAIR_HALVES >> p) & 1)];
  }
#else
  a.pair = pair;
#endif
  return a;
}

float16_t half_of(uint word, uint i) { return unpackFloat2x16(word)[i]; }
#if FRAGMENT_LAYOUT == 2
uint c_row(uint e) { return sum_row(e); }
uint c_column(uint e) { return lane_row(); }
#else
uint c_row(uint e) { return (lane_id() >> 2) + 8 * (e / (C_ELEMENTS / 2)); }
uint c_column(uint e) { return (lane_id() & 3) * 2 + (e & 1) + 8 * (e / 2 % (B_COLUMNS / 8)); }
#endif

void multiply_add(MatrixA a, MatrixB b, inout MatrixC c) {
  barrier();
#if FRAGMENT_LAYOUT == 1
  f16vec2 ordered[4];
  [[unroll]] for (uint p = 0; p < 4; ++p) {
    ordered[((PAIR_ROWS >> p) & 1) * 2 + ((PAIR_HALVES >> p) & 1)] = a.pair[p];
  }
  put_a(ordered);
#else
  put_a(a.pair);
#endif
#ifdef HELD_B
  uint own = (subgroup_id() * 16 + lane_row()) * A_STRIDE;
#if B_COLUMNS == 8
  shared_b[own][lane_quarter()] = packFloat2x16(b.low);
  shared_b[own + 1][lane_quarter()] = packFloat2x16(b.high);
#else
  shared_b[own] = b.low;
  shared_b[own + 1] = b.high;
#endif
#endif
  barrier();
  for (uint e = 0; e < C_ELEMENTS; ++e) {
    uint row = subgroup_id() * 16 + c_row(e);
    for (uint k = 0; k < 16; ++k) {
#ifdef HELD_B
      uint column = (subgroup_id() * 16 + c_column(e)) * A_STRIDE;
      uint x = shared_b[column + k / 8][(k % 8) / 2], at = k;
#else
      uint line = b.is_rows ? k : c_column(e), at = b.is_rows ? c_column(e) : k;
      uint x = shared_words[b.at + line * b.stride + at / 8][(at % 8) / 2];
#endif
      uint w = shared_a[row * A_STRIDE + k / 8][(k % 8) / 2];
      c.e[e] += float(half_of(w, k & 1)) * float(half_of(x, at & 1));
    }
  }
}

#if B_COLUMNS == 16
void store_c(MatrixC c, uint at, uint stride) {
  for (uint e = 0; e < C_ELEMENTS; ++e) {
    shared_words[at + c_column(e) * stride + c_row(e) / 4][c_row(e) % 4] = floatBitsToUint(c.e[e]);
  }
}
void store_c_rows(MatrixC c, uint at, uint stride) {
  for (uint e = 0; e < C_ELEMENTS; ++e) {
    shared_words[at + c_row(e) * stride + c_column(e) / 4][c_column(e) % 4] =
        floatBitsToUint(c.e[e]);
  }
}
#endif
#endif
#endif
