// Products of 16 x 16 matrices on the matrix units, float16 into float32: sixteen accumulators a
// subgroup of 32, operands in registers.  These come from shared memory: matrices of one value alone
// are made again for every product by some compilers, at 0.6 of the rate.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
#include "push/compute_rate.glsl"
const uint kA = 4, kB = 4;

shared uvec4 words[(kA + kB) * 32];

void main() {
  for (uint i = gl_LocalInvocationIndex; i < (kA + kB) * 32; i += gl_WorkGroupSize.x) {
    words[i] = uvec4(packFloat2x16(f16vec2(factor * (i % 7), factor * (i % 5))));
  }
  barrier();
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[kA];
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b[kB];
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> c[kA * kB];
  [[unroll]] for (uint i = 0; i < kA; ++i) {
    coopMatLoad(a[i], words, i * 32, 2, gl_CooperativeMatrixLayoutRowMajor);
  }
  [[unroll]] for (uint j = 0; j < kB; ++j) {
    coopMatLoad(b[j], words, (kA + j) * 32, 2, gl_CooperativeMatrixLayoutColumnMajor);
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
