// Reads memory as fast as the device can: every workgroup its own piece, LOADS loads of 16 bytes
// under way in each thread.  Many hide latency; a processor has registers for few.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
#include "push/read_rate.glsl"
const uint kLoads = LOADS;

void main() {
  uint64_t at = source + (uint64_t(gl_WorkGroupID.x) * rounds * kLoads * gl_WorkGroupSize.x +
                          gl_LocalInvocationIndex) * 16;
  uint64_t step = uint64_t(gl_WorkGroupSize.x) * 16;
  u64vec2 seen = u64vec2(0);
  for (uint i = 0; i < rounds; ++i) {
    u64vec2 word[kLoads];
    [[unroll]] for (uint j = 0; j < kLoads; ++j) word[j] = Wide(at + j * step).v;
    [[unroll]] for (uint j = 0; j < kLoads; ++j) seen ^= word[j];
    at += kLoads * step;
  }
  if (uint(seen.x ^ seen.y) == key) Word(sink).v = key;
}
