// Which elements of the sum C (16 x 8, int32) of int8 matmuls each of a subgroup's 32 lanes holds:
// loads a matrix whose elements are their own positions.  Runs once, when a device is opened.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
#include "push/probe.glsl"

shared int numbers[128];

void main() {
  uint lane = gl_SubgroupInvocationID;
  for (uint i = lane; i < 128; i += 32) numbers[i] = int(i);
  barrier();
  coopmat<int32_t, gl_ScopeSubgroup, 16, 8, gl_MatrixUseAccumulator> c;
  coopMatLoad(c, numbers, 0, 8, gl_CooperativeMatrixLayoutRowMajor);
  if (lane == 0) {
    Word(destination).v = c.length();
    Word(destination + 4).v = 0;
  }
  uint64_t to = destination + 8 + lane * (kMaxElements * 4);
  for (uint i = 0; i < min(c.length(), kMaxElements); ++i) Word(to + i * 4).v = uint(c[i]);
}
