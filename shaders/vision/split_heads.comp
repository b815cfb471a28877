// From the fused projection to q, k and v as attention reads them, in float16:
//
//   (q, k, v)[row] = sums[row] + (q_bias, k_bias, v_bias)
//
// k and v go to pages of kKvF16 (kv_cache.glsl): row r is position r, position / block_tokens its
// block.  One workgroup a row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "kv_cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint HEAD_DIM = 64;  // a multiple of 8
#include "push/split_heads.glsl"

void main() {
  uint row = gl_WorkGroupID.x, dim = num_heads * HEAD_DIM;
  uint64_t from = sums + uint64_t(row) * 3 * dim * 4;
  uint block = row / block_tokens, token = row % block_tokens;
  for (uint i = gl_LocalInvocationIndex * 4; i < 3 * dim; i += gl_WorkGroupSize.x * 4) {
    bool is_q = i < dim, is_k = !is_q && i < 2 * dim;
    uint at = i - (is_q ? 0 : is_k ? dim : 2 * dim), head = at / HEAD_DIM;
    uint64_t added = is_q ? q_bias : is_k ? k_bias : v_bias;
    vec4 x = load_vec4(from + i * 4) + load_vec4(added + at * 4);
    uint64_t to = is_q ? q : is_k ? k_cache : v_cache;
    uint vector =
        is_q ? row * num_heads + head : (block * num_heads + head) * block_tokens + token;
    store_kv4(kKvF16, to, vector, at % HEAD_DIM, kv_pack4(kKvF16, x), block_tokens, HEAD_DIM);
  }
}
