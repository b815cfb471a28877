// Fused multiply-adds in float32, 32 independent chains a thread.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push {
  uint64_t sink;  // written if the chains' sum is negative, which it never is
  uint rounds;    // of 32 multiply-adds a thread
  float factor;   // positive, below 1
};
const uint kChains = 8;

void main() {
  vec4 chain[kChains];
  [[unroll]] for (uint j = 0; j < kChains; ++j) chain[j] = vec4(j + gl_LocalInvocationIndex);
  for (uint i = 0; i < rounds; ++i) {
    [[unroll]] for (uint j = 0; j < kChains; ++j) {
      chain[j] = fma(chain[j], vec4(factor), vec4(1.0));
    }
  }
  vec4 sum = vec4(0);
  [[unroll]] for (uint j = 0; j < kChains; ++j) sum += chain[j];
  if (dot(sum, vec4(1)) < 0) Word(sink).v = 1;
}
