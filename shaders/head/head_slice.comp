// From a slice of one output's logits to what the whole output's result is made of
// (head_merge.comp): the highest logit, the sum of exp(logit - highest), the count of logits that
// are not finite, and the slice's best candidates in no order.  x slice, y output.
// MASKED: if the output has a mask, all but the count is of the tokens whose bits are set.  A
// constant: without it a step of 32 rows of a 1B model takes 2% longer on an H200, masks or not.
// TEXELS: the logits are read through a texel buffer.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "top_candidates.glsl"
#include "push/head_slice.glsl"

layout(constant_id = 3) const uint MASKED = 0;

uint begin() { return gl_WorkGroupID.x * slice_len; }

// The slice's logits begin here.  Computed once: AMD's compiler would leave the products and the
// reads of push constants in every loop.
#ifdef TEXELS
layout(binding = 0, r32ui) uniform readonly restrict uimageBuffer logit_texels;
int first_logit;
void find_logits() { first_logit = int(gl_WorkGroupID.y * logit_stride + begin()); }
uint load_logit(uint i) { return imageLoad(logit_texels, first_logit + int(i)).x; }
#else
uint64_t first_logit;
void find_logits() {
  first_logit = logits + (uint64_t(gl_WorkGroupID.y) * logit_stride + begin()) * 4;
}
uint load_logit(uint i) { return load_uint(first_logit + i * 4); }
#endif

// The slice's part of the output's mask.  begin() is a multiple of 32.
shared uint mask_words[kMaxHeadSlice / 32];
bool masked = false;

void load_mask(uint count) {
  if (MASKED == 0) return;
  uint index = output_mask(step, gl_WorkGroupID.y + first_output);
  masked = index != kNoMask;
  if (!masked) return;
  uint64_t words = masks + uint64_t(index) * ((vocab_size + 31) / 32 * 4) + begin() / 8;
  for (uint i = gl_LocalInvocationIndex; i * 32 < count; i += gl_WorkGroupSize.x) {
    mask_words[i] = load_uint(words + i * 4);
  }
  barrier();
}
bool allowed(uint i) {
  return MASKED == 0 || !masked || (mask_words[i >> 5] >> (i & 31) & 1) != 0;
}

uvec2 load_item(uint i) {
  return uvec2(load_logit(i), allowed(i) ? begin() + i : kNoToken);
}

void main() {
  uint local = gl_LocalInvocationIndex, threads = gl_WorkGroupSize.x;
  if (gl_WorkGroupID.y + first_output >= num_outputs(step)) return;
  uint count = min(slice_len, vocab_size - begin());
  find_logits();
  load_mask(count);
  float highest = minus_infinity(), nonfinite = 0.0, refused = 0.0;
  for (uint i = local; i < count; i += threads) {
    uint bits = load_logit(i);
    if (!is_finite(bits)) {
      nonfinite += 1.0;
    } else if (allowed(i)) {
      highest = max(highest, uintBitsToFloat(bits));
    } else {
      refused += 1.0;
    }
  }
  highest = workgroup_max(highest);
  nonfinite = workgroup_sum(nonfinite);
  if (MASKED != 0 && masked) refused = workgroup_sum(refused);
  float sum = 0.0;
  for (uint i = local; i < count; i += threads) {
    uint bits = load_logit(i);
    if (is_finite(bits) && allowed(i)) sum += exp(uintBitsToFloat(bits) - highest);
  }
  sum = workgroup_sum(sum);
  uint wanted = min(load_uint(step + kNumCandidatesOffset), kMaxCandidates);
  wanted = min(wanted, count - uint(nonfinite) - uint(refused));
  find_top(count, wanted, highest);
  uint64_t slice =
      slices + (uint64_t(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x) * kResultBytes;
  for (uint i = local; i < wanted; i += threads) {
    store_candidate(slice, i, found_tokens[i], load_logit(found_tokens[i] - begin()));
  }
  if (local == 0) {
    Float(slice).v = highest;
    Float(slice + 4).v = sum;
    Word(slice + 8).v = wanted;
    Word(slice + 12).v = uint(nonfinite);
  }
}
