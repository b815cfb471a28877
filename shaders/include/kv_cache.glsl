// The paged KV cache of one layer: K, and V, of [num_blocks, num_kv_heads] pages of block_tokens
// vectors.
//
//   kKvF16   a page is float16 [block_tokens, head_dim]
//   kKvQ8_0  a page is int8 [block_tokens, head_dim], then float16 [block_tokens, head_dim / 32]
//            scales, filled up to a multiple of 16 bytes: element = scale * int8, in blocks of 32,
//            a block's scale its highest magnitude / 127.  head_dim is a multiple of 64.
//
// services/common/tensor/kv_format.h is the same for the host.
#ifndef TANDEM_KV_CACHE_GLSL
#define TANDEM_KV_CACHE_GLSL
#include "activation.glsl"
#include "step.glsl"

// Index of a head's vector in K and V: REQUIRES the position's block is in the table.
uint kv_vector(uint64_t table, uint position, uint block_tokens, uint num_kv_heads, uint kv_head) {
  uint block = load_uint(table + uint64_t(position / block_tokens) * 4);
  return (block * num_kv_heads + kv_head) * block_tokens + position % block_tokens;
}

uint64_t kv_page(uint64_t cache, uint vector, uint block_tokens, uint head_dim) {
  uint bytes = block_tokens * (head_dim + head_dim / 16);
  return cache + uint64_t(vector / block_tokens) * ((bytes + 15) / 16 * 16);
}

// Elements [8 chunk, 8 chunk + 8) of a vector as they are on their way: eight float16, or eight
// int8 and their scale, a float16 in the low half of z.
uvec4 load_kv_chunk(uint format, uint64_t cache, uint vector, uint chunk, uint block_tokens,
                    uint head_dim) {
  if (format == kKvF16) return load_uvec4(cache + uint64_t(vector) * head_dim * 2 + chunk * 16);
  uint64_t page = kv_page(cache, vector, block_tokens, head_dim);
  uint token = vector % block_tokens;
  uint64_t scales = page + block_tokens * head_dim + token * (head_dim / 16);
  return uvec4(unpack32(Long(page + token * head_dim + chunk * 8).v),
               uint(Short(scales + chunk / 4 * 2).v), 0);
}
// Chunks 2 pair and 2 pair + 1 of a kKvQ8_0 vector, by one load.
uvec4[2] load_kv_pair(uint64_t cache, uint vector, uint pair, uint block_tokens, uint head_dim) {
  uint64_t page = kv_page(cache, vector, block_tokens, head_dim);
  uint token = vector % block_tokens;
  uvec4 bits = load_uvec4(page + token * head_dim + pair * 16);
  uint64_t scales = page + block_tokens * head_dim + token * (head_dim / 16);
  uint scale = uint(Short(scales + pair / 2 * 2).v);
  return uvec4[2](uvec4(bits.xy, scale, 0), uvec4(bits.zw, scale, 0));
}
// Four int8.  The float16 1024 + (x + 128) has x + 128 for its low byte: conversions from integers
// are slow on many devices.
vec4 kv_bytes4(uint word) {
  vec2 even = unpackHalf2x16((word & 0x00FF00FFu) ^ 0x64806480u) - 1152.0;
  vec2 odd = unpackHalf2x16(((word >> 8) & 0x00FF00FFu) ^ 0x64806480u) - 1152.0;
  return vec4(even.x, odd.x, even.y, odd.y);
}
// What a chunk's elements are to be multiplied by: low and high of kKvQ8_0 are whole numbers.
float kv_scale(uvec4 chunk) { return unpackHalf2x16(chunk.z).x; }
vec4 kv_low(uint format, uvec4 chunk) {
  if (format == kKvQ8_0) return kv_bytes4(chunk.x);
  return vec4(unpackHalf2x16(chunk.x), unpackHalf2x16(chunk.y));
}
vec4 kv_high(uint format, uvec4 chunk) {
  if (format == kKvQ8_0) return kv_bytes4(chunk.y);
  return vec4(unpackHalf2x16(chunk.z), unpackHalf2x16(chunk.w));
}
// As eight float16.
uvec4 kv_halves(uint format, uvec4 chunk) {
  if (format == kKvF16) return chunk;
  vec4 x = kv_bytes4(chunk.x) * kv_scale(chunk), y = kv_bytes4(chunk.y) * kv_scale(chunk);
  return uvec4(pack_halves(x.xy), pack_halves(x.zw), pack_halves(y.xy), pack_halves(y.zw));
}

// Four elements as they are stored: four int8 and their scale, a float16 in the low half of y, or
// four float16.  kKvQ8_0: eight neighbouring lanes, all active, hold a block of 32.
uvec2 kv_pack4(uint format, vec4 x) {
  if (format == kKvF16) return uvec2(pack_halves(x.xy), pack_halves(x.zw));
  uint highest = max_of_eight(magnitude_bits(x));
  return uvec2(quantize4(x, block_inverse(highest)), pack_halves(vec2(block_scale(highest), 0.0)));
}
// Four float16 that kv_halves makes of what kv_pack4 made.
uvec2 kv_halves4(uint format, uvec2 bits) {
  if (format == kKvF16) return bits;
  vec4 x = kv_bytes4(bits.x) * unpackHalf2x16(bits.y).x;
  return uvec2(pack_halves(x.xy), pack_halves(x.zw));
}
// Stores elements [i, i + 4) of a vector, from kv_pack4.
void store_kv4(uint format, uint64_t cache, uint vector, uint i, uvec2 bits, uint block_tokens,
               uint head_dim) {
  if (format == kKvF16) {
    Long(cache + uint64_t(vector) * head_dim * 2 + i * 2).v = pack64(bits);
    return;
  }
  uint64_t page = kv_page(cache, vector, block_tokens, head_dim);
  uint token = vector % block_tokens;
  Word(page + token * head_dim + i).v = bits.x;
  if ((i & 31) == 0) {
    uint64_t scales = page + block_tokens * head_dim + token * (head_dim / 16);
    Short(scales + i / 32 * 2).v = uint16_t(bits.y);
  }
}
#endif
