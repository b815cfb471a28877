// out[row, :] = table[token(row), :] * scale, for the rows whose token lies in this shard; rows of
// pictures as they are given, with the first shard.  One workgroup a row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "step.glsl"
#include "weights.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 4) const bool PICTURES = false;  // steps may have some
#include "push/embed.glsl"

void main() {
  uint row = gl_WorkGroupID.x;
  if (row >= num_rows(step)) return;
  if (PICTURES && picture_end(step, row) != 0) {
    if (first_token != 0) return;
    for (uint i = gl_LocalInvocationIndex * 4; i < cols; i += gl_WorkGroupSize.x * 4) {
      uint64_t at = (uint64_t(row) * cols + i) * 4;
      store_vec4(destination + at, load_vec4(soft_tokens + at));
    }
    return;
  }
  uint token = row_token(step, row, guesses) - first_token;
  if (token >= num_tokens) return;  // below the shard wraps round
  WeightRow w = weight_row(plane, token, cols);
  for (uint block = gl_LocalInvocationIndex; block < cols / 32; block += gl_WorkGroupSize.x) {
    WeightBlock b = load_block(w, block);
    uint64_t to = destination + (uint64_t(row) * cols + block * 32) * 4;
    [[unroll]] for (uint j = 0; j < 8; ++j) store_vec4(to + j * 16, block_vec4(b, j) * scale);
  }
}
