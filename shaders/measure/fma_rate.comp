// Fused multiply-adds in float32, 4 CHAINS independent chains a thread.  Many hide latency; a
// processor has registers for few.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
#include "push/compute_rate.glsl"
const uint kChains = CHAINS;
const uint kRepeats = 4;  // so that the loop costs little beside them

void main() {
  vec4 chain[kChains];
  [[unroll]] for (uint j = 0; j < kChains; ++j) chain[j] = vec4(j + gl_LocalInvocationIndex);
  for (uint i = 0; i < rounds; ++i) {
    [[unroll]] for (uint repeat = 0; repeat < kRepeats; ++repeat) {
      [[unroll]] for (uint j = 0; j < kChains; ++j) {
        chain[j] = fma(chain[j], vec4(factor), vec4(1.0));
      }
    }
  }
  vec4 sum = vec4(0);
  [[unroll]] for (uint j = 0; j < kChains; ++j) sum += chain[j];
  if (dot(sum, vec4(1)) < 0) Word(sink).v = 1;
}
