// Which elements of matrices B (16 x 8, float16) and C (16 x 8, float32) each of a subgroup's 32 lanes
// holds: loads matrices whose elements are their own positions.  Runs once, when a device is opened.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
#include "push/probe.glsl"

shared float16_t numbers[128];
shared float sum_numbers[128];

void main() {
  uint lane = gl_SubgroupInvocationID;
  for (uint i = lane; i < 128; i += 32) {
    numbers[i] = float16_t(i);
    sum_numbers[i] = float(i);
  }
  barrier();
  coopmat<float16_t, gl_ScopeSubgroup, 16, 8, gl_MatrixUseB> b;
  coopmat<float, gl_ScopeSubgroup, 16, 8, gl_MatrixUseAccumulator> c;
  coopMatLoad(b, numbers, 0, 8, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(c, sum_numbers, 0, 8, gl_CooperativeMatrixLayoutRowMajor);
  if (lane == 0) {
    Word(destination).v = b.length();
    Word(destination + 4).v = c.length();
  }
  for (uint i = 0; i < min(b.length(), kMaxElements); ++i) {
    Word(destination + 8 + (lane * kMaxElements + i) * 4).v = uint(b[i]);
  }
  const uint kSums = 8 + 32 * kMaxElements * 4;
  for (uint i = 0; i < min(c.length(), kMaxElements); ++i) {
    Word(destination + kSums + (lane * kMaxElements + i) * 4).v = uint(c[i]);
  }
}
