// pooled[p, :] = sum of x[row, :] over the rows of the step's p-th pooled sequence, in a fixed
// order: each of a column's threads sums every n-th row; the partial sums are added in a fixed
// order.
// x columns, y pooled sequence.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "step.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 8;  // kMaxPoolThreads at most
layout(constant_id = 3) const uint COLUMNS = 8;  // of four elements, a workgroup's; divides THREADS
#include "push/pool.glsl"

shared vec4 sums[kMaxPoolThreads];

void main() {
  if (gl_WorkGroupID.y >= num_pooled(step)) return;
  uint64_t entry = sequence_entry(step, pooled_sequence(step, gl_WorkGroupID.y));
  uint first_row = load_uint(entry), rows = load_uint(entry + 4);
  uint index = gl_LocalInvocationIndex;
  uint column = (gl_WorkGroupID.x * COLUMNS + index % COLUMNS) * 4;
  uint64_t from = source + (uint64_t(first_row) * cols + column) * 4;
  vec4 sum = vec4(0.0);
  if (column < cols) {
    for (uint r = index / COLUMNS; r < rows; r += THREADS / COLUMNS) {
      sum += load_vec4(from + uint64_t(r) * cols * 4);
    }
  }
  sums[index] = sum;
  barrier();
  if (index >= COLUMNS || column >= cols) return;
  for (uint i = index + COLUMNS; i < THREADS; i += COLUMNS) sum += sums[i];
  store_vec4(destination + (uint64_t(gl_WorkGroupID.y) * cols + column) * 4, sum);
}
