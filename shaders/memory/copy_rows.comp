// Copies the first `count` rows of float32 vectors.
// One workgroup a piece of a row: x piece, y row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "memory.glsl"
layout(local_size_x_id = 0) in;
#include "push/copy_rows.glsl"

void main() {
  uint row = gl_WorkGroupID.y;
  if (row + first_row >= load_uint(count)) return;
  uint end = min(cols, (gl_WorkGroupID.x + 1) * kCopyPiece);
  uint64_t from = source + uint64_t(row) * source_stride * 4;
  uint64_t to = destination + uint64_t(row + first_row) * destination_stride * 4;
  for (uint i = gl_WorkGroupID.x * kCopyPiece + gl_LocalInvocationIndex; i < end;
       i += gl_WorkGroupSize.x) {
    Word(to + uint64_t(i) * 4).v = Word(from + uint64_t(i) * 4).v;
  }
}
