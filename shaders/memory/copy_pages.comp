// Copies pages between places that a table names.
// x: piece of a page; workgroup y copies pages y, y + gl_NumWorkGroups.y, ...
#version 460
#extension GL_GOOGLE_include_directive : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
#include "push/copy_pages.glsl"

void main() {
  const uint end = min(units, (gl_WorkGroupID.x + 1) * gl_WorkGroupSize.x * kPageTurns);
  const uint first = gl_WorkGroupID.x * gl_WorkGroupSize.x * kPageTurns + gl_LocalInvocationIndex;
  for (uint page = gl_WorkGroupID.y; page < num_pages; page += gl_NumWorkGroups.y) {
    u64vec2 places = Wide(table + uint64_t(page) * 16).v;
    // All loads of a piece are under way before the first store.
    u64vec2 held[kPageTurns];
    [[unroll]] for (uint i = 0; i < kPageTurns; ++i) {
      uint at = min(first + i * gl_WorkGroupSize.x, units - 1);
      held[i] = Wide(places.x + uint64_t(at) * 16).v;
    }
    [[unroll]] for (uint i = 0; i < kPageTurns; ++i) {
      uint at = first + i * gl_WorkGroupSize.x;
      if (at < end) Wide(places.y + uint64_t(at) * 16).v = held[i];
    }
  }
}
