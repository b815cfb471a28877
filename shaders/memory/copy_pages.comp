// Copies pages between places that a table names.
// One workgroup a piece of a page: x piece, y page, and those behind it by as many as there are in y.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 4) const bool WIDE = true;
#include "push/copy_pages.glsl"

void copy(uint64_t from, uint64_t to) {
  const uint end = min(units, (gl_WorkGroupID.x + 1) * gl_WorkGroupSize.x * kPageTurns);
  const uint first = gl_WorkGroupID.x * gl_WorkGroupSize.x * kPageTurns + gl_LocalInvocationIndex;
  if (WIDE) {
    // All loads of a piece are under way before the first store.
    u64vec2 held[kPageTurns];
    [[unroll]] for (uint i = 0; i < kPageTurns; ++i) {
      uint at = min(first + i * gl_WorkGroupSize.x, units - 1);
      held[i] = Wide(from + uint64_t(at) * 16).v;
    }
    [[unroll]] for (uint i = 0; i < kPageTurns; ++i) {
      uint at = first + i * gl_WorkGroupSize.x;
      if (at < end) Wide(to + uint64_t(at) * 16).v = held[i];
    }
  } else {
    for (uint at = first; at < end; at += gl_WorkGroupSize.x) {
      Word(to + uint64_t(at) * 4).v = Word(from + uint64_t(at) * 4).v;
    }
  }
}

void main() {
  for (uint page = gl_WorkGroupID.y; page < num_pages; page += gl_NumWorkGroups.y) {
    u64vec2 places = Wide(table + uint64_t(page) * 16).v;
    copy(places.x, places.y);
  }
}
