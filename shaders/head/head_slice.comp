// From a slice of one output's logits to what the whole output's result is made of
// (head_merge.comp): the highest logit, the sum of exp(logit - highest), the count of logits that
// are not finite, and the slice's best candidates in no order.  x slice, y output.
// TEXELS: the logits are read through a texel buffer.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "top_candidates.glsl"
#include "push/head_slice.glsl"

uint begin() { return gl_WorkGroupID.x * slice_len; }

#ifdef TEXELS
layout(binding = 0, r32ui) uniform readonly restrict uimageBuffer logit_texels;
uint load_logit(uint token) {
  return imageLoad(logit_texels, int(gl_WorkGroupID.y * logit_stride + token)).x;
}
#else
uint load_logit(uint token) {
  return load_uint(logits + (uint64_t(gl_WorkGroupID.y) * logit_stride + token) * 4);
}
#endif

uvec2 load_item(uint i) {
  uint token = begin() + i;
  return uvec2(load_logit(token), token);
}

void main() {
  uint local = gl_LocalInvocationIndex, threads = gl_WorkGroupSize.x;
  if (gl_WorkGroupID.y + first_output >= num_outputs(step)) return;
  uint count = min(slice_len, vocab_size - begin());
  float highest = minus_infinity(), nonfinite = 0.0;
  for (uint i = local; i < count; i += threads) {
    uint bits = load_item(i).x;
    if (is_finite(bits)) {
      highest = max(highest, uintBitsToFloat(bits));
    } else {
      nonfinite += 1.0;
    }
  }
  highest = workgroup_max(highest);
  nonfinite = workgroup_sum(nonfinite);
  float sum = 0.0;
  for (uint i = local; i < count; i += threads) {
    uint bits = load_item(i).x;
    if (is_finite(bits)) sum += exp(uintBitsToFloat(bits) - highest);
  }
  sum = workgroup_sum(sum);
  uint wanted = min(load_uint(step + kNumCandidatesOffset), kMaxCandidates);
  wanted = min(wanted, count - uint(nonfinite));
  find_top(count, wanted, highest);
  uint64_t slice =
      slices + (uint64_t(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x) * kResultBytes;
  for (uint i = local; i < wanted; i += threads) {
    store_candidate(slice, i, found_tokens[i], load_logit(found_tokens[i]));
  }
  if (local == 0) {
    Float(slice).v = highest;
    Float(slice + 4).v = sum;
    Word(slice + 8).v = wanted;
    Word(slice + 12).v = uint(nonfinite);
  }
}
