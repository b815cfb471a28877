// Which elements of matrices A and C (16 x 16, float16 and float32), or with NARROW of B and C (16 x 8),
// each of a subgroup's 32 lanes holds: loads matrices whose elements are their own positions.  Runs
// once, when a device is opened.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
#include "push/probe.glsl"

#ifdef NARROW
#define COLUMNS 8
#define FACTOR gl_MatrixUseB
#else
#define COLUMNS 16
#define FACTOR gl_MatrixUseA
#endif
shared float16_t numbers[16 * COLUMNS];
shared float sum_numbers[16 * COLUMNS];

void main() {
  uint lane = gl_SubgroupInvocationID;
  for (uint i = lane; i < 16 * COLUMNS; i += 32) {
    numbers[i] = float16_t(i);
    sum_numbers[i] = float(i);
  }
  barrier();
  coopmat<float16_t, gl_ScopeSubgroup, 16, COLUMNS, FACTOR> a;
  coopmat<float, gl_ScopeSubgroup, 16, COLUMNS, gl_MatrixUseAccumulator> c;
  coopMatLoad(a, numbers, 0, COLUMNS, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(c, sum_numbers, 0, COLUMNS, gl_CooperativeMatrixLayoutRowMajor);
  if (lane == 0) {
    Word(destination).v = a.length();
    Word(destination + 4).v = c.length();
  }
  for (uint i = 0; i < min(a.length(), kMaxElements); ++i) {
    Word(destination + 8 + (lane * kMaxElements + i) * 4).v = uint(a[i]);
  }
  const uint kSums = 8 + 32 * kMaxElements * 4;
  for (uint i = 0; i < min(c.length(), kMaxElements); ++i) {
    Word(destination + kSums + (lane * kMaxElements + i) * 4).v = uint(c[i]);
  }
}
