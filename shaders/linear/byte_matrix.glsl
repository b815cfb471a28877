// Matmuls of int8 matrices by a team of 32: C[c, r] = sum_k A[c, k] B[k, r], A 16 x 32,
// B 32 x 8, C 16 x 8 of int32.  Real ones (VK_KHR_cooperative_matrix), or with EMULATED the same
// interface in plain arithmetic, so that a kernel is tested on a device that has none.
//
// Lane 4 g + t holds columns 2 t and 2 t + 1 of rows g and g + 8 of C, in this order.  Vulkan does not
// say so: byte_probe.comp looks.  A comes from shared memory, from `lines`, B from `staged`.
#ifndef TANDEM_BYTE_MATRIX_GLSL
#define TANDEM_BYTE_MATRIX_GLSL
#ifndef EMULATED
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#endif

// A sum that begins with these bits, read as float32, is kByteSumBegin plus the sum, if that stays
// below 2^22.
const int kByteSumBits = 0x4B400000;
const float kByteSumBegin = 12582912.0;

#ifndef EMULATED
#define ByteMatrixA coopmat<int8_t, gl_ScopeSubgroup, 16, 32, gl_MatrixUseA>
#define ByteMatrixB coopmat<int8_t, gl_ScopeSubgroup, 32, 8, gl_MatrixUseB>
#define ByteSums coopmat<int32_t, gl_ScopeSubgroup, 16, 8, gl_MatrixUseAccumulator>
#define LOAD_BYTES_A(a, at, stride) \
  coopMatLoad(a, lines, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_BYTES_B(b, at, stride) \
  coopMatLoad(b, staged, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define MULTIPLY_BYTES(c, a, b) c = coopMatMulAdd(a, b, ByteSums(kByteSumBits))
#define BYTE_SUM(c, e) (intBitsToFloat((c)[e]) - kByteSumBegin)

#else
struct ByteMatrixA {
  uint at, stride;
};
struct ByteMatrixB {
  uint at, stride;
};
struct ByteSums {
  int e[4];
};
#define LOAD_BYTES_A(a, where, by) a = ByteMatrixA(where, by)
#define LOAD_BYTES_B(b, where, by) b = ByteMatrixB(where, by)
#define MULTIPLY_BYTES(c, a, b) multiply_bytes(c, a, b)
#define BYTE_SUM(c, i) (intBitsToFloat((c).e[i] + kByteSumBits) - kByteSumBegin)

void multiply_bytes(out ByteSums c, ByteMatrixA a, ByteMatrixB b) {
  uint lane = gl_LocalInvocationIndex & 31;
  for (uint e = 0; e < 4; ++e) {
    uint row = a.at + (lane / 4 + 8 * (e >> 1)) * a.stride;
    uint column = b.at + ((lane & 3) * 2 + (e & 1)) * b.stride;
    c.e[e] = dot16(lines[row], staged[column]) + dot16(lines[row + 1], staged[column + 1]);
  }
}
#endif
#endif
