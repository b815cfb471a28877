// Products of 16 x 16 matrices on the matrix units, float16 into float32: eight accumulators a
// subgroup of 32, operands in registers.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push {
  uint64_t sink;  // written if the sums are negative, which they never are
  uint rounds;    // of eight products a subgroup
  float factor;   // positive
};
const uint kA = 2, kB = 4;

void main() {
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[kA];
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b[kB];
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> c[kA * kB];
  [[unroll]] for (uint i = 0; i < kA; ++i) {
    a[i] = coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>(
        float16_t(factor * (i + gl_SubgroupInvocationID)));
  }
  [[unroll]] for (uint j = 0; j < kB; ++j) {
    b[j] = coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>(
        float16_t(factor * (j + gl_SubgroupInvocationID)));
  }
  [[unroll]] for (uint i = 0; i < kA * kB; ++i) {
    c[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  }
  for (uint r = 0; r < rounds; ++r) {
    [[unroll]] for (uint i = 0; i < kA; ++i) {
      [[unroll]] for (uint j = 0; j < kB; ++j) {
        c[i * kB + j] = coopMatMulAdd(a[i], b[j], c[i * kB + j]);
      }
    }
  }
  float sum = 0;
  [[unroll]] for (uint i = 0; i < kA * kB; ++i) {
    for (uint e = 0; e < c[i].length(); ++e) sum += c[i][e];
  }
  if (sum < 0) Word(sink).v = 1;
}
