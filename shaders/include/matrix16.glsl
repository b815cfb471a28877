// Multiplication of 16 x 16 matrices by 32 neighbouring invocations, a team: C = A B + C, A and B float16,
// C float32.  COOPERATIVE: on the device's matrix units (VK_KHR_cooperative_matrix), a team is a
// subgroup.  Otherwise in plain arithmetic on any device: an invocation owns half a row of A and C.
//
// Half rows: invocation i of a team has row i / 2, columns 8 (i % 2) and on.
#ifndef TANDEM_MATRIX16_GLSL
#define TANDEM_MATRIX16_GLSL
#include "half_row.glsl"
#include "memory.glsl"
#ifdef COOPERATIVE
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#endif

vec4 low_halves(uvec4 bits) { return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y)); }
vec4 high_halves(uvec4 bits) { return vec4(unpackHalf2x16(bits.z), unpackHalf2x16(bits.w)); }

// `array`: uvec4s in shared memory, eight elements each; at, by: in uvec4s.  LOAD_A, LOAD_B: row i is
// at + i * by; LOAD_B_TRANSPOSED: column i is.  What B was loaded from must stay until it is used.
#ifdef COOPERATIVE
#define UNROLL [[unroll]]
#define MatrixA coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define MatrixB coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define MatrixC coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define ZERO_C MatrixC(0.0)
#define LOAD_A(a, array, at, by) coopMatLoad(a, array, at, by, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_B(b, array, at, by) coopMatLoad(b, array, at, by, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_B_TRANSPOSED(b, array, at, by) \
  coopMatLoad(b, array, at, by, gl_CooperativeMatrixLayoutColumnMajor)
#define MULTIPLY_ADD(c, a, b, array) c = coopMatMulAdd(a, b, c)

uint team_id() { return gl_SubgroupID; }
uint team_lane() { return gl_SubgroupInvocationID; }

#else
#define UNROLL
struct MatrixA {
  uvec4 half_row;
};
struct MatrixB {
  uint at, by;
  bool is_transposed;
};
#define MatrixC HalfRow
#define ZERO_C HalfRow(float[8](0, 0, 0, 0, 0, 0, 0, 0))
#define LOAD_A(a, array, at, by) a.half_row = array[at + (team_lane() / 2) * (by) + (team_lane() & 1)]
#define LOAD_B(b, array, at, by) b = MatrixB(at, by, false)
#define LOAD_B_TRANSPOSED(b, array, at, by) b = MatrixB(at, by, true)

uint team_id() { return gl_LocalInvocationIndex / 32; }
uint team_lane() { return gl_LocalInvocationIndex & 31; }

struct Row16 {
  vec4 e[4];
};
Row16 row_of(MatrixA a) {
  uvec4 other = subgroupShuffleXor(a.half_row, 1);
  bool is_low = (team_lane() & 1) == 0;
  uvec4 first = is_low ? a.half_row : other, second = is_low ? other : a.half_row;
  return Row16(vec4[4](low_halves(first), high_halves(first), low_halves(second),
                       high_halves(second)));
}
#define MULTIPLY_ADD(c, a, b, array)                                  \
  {                                                                   \
    Row16 a_ = row_of(a);                                             \
    uint half_ = team_lane() & 1;                                     \
    if (b.is_transposed) {                                            \
      [[unroll]] for (uint e_ = 0; e_ < 8; ++e_) {                    \
        uint at_ = b.at + (half_ * 8 + e_) * b.by;                    \
        uvec4 x_ = array[at_], y_ = array[at_ + 1];                   \
        vec4 sum_ = low_halves(x_) * a_.e[0];                         \
        sum_ = fma(high_halves(x_), a_.e[1], sum_);                   \
        sum_ = fma(low_halves(y_), a_.e[2], sum_);                    \
        sum_ = fma(high_halves(y_), a_.e[3], sum_);                   \
        c.e[e_] += (sum_.x + sum_.y) + (sum_.z + sum_.w);             \
      }                                                               \
    } else {                                                          \
      [[unroll]] for (uint k_ = 0; k_ < 16; ++k_) {                   \
        uvec4 b_ = array[b.at + k_ * b.by + half_];                   \
        vec4 x_ = low_halves(b_), y_ = high_halves(b_);               \
        float f_ = a_.e[k_ / 4][k_ % 4];                              \
        [[unroll]] for (uint e_ = 0; e_ < 4; ++e_) {                  \
          c.e[e_] = fma(f_, x_[e_], c.e[e_]);                         \
          c.e[e_ + 4] = fma(f_, y_[e_], c.e[e_ + 4]);                 \
        }                                                             \
      }                                                               \
    }                                                                 \
  }
#endif
#endif
