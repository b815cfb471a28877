// From the slices of one output's logits (head_slice.comp) to its OutputResult
// (services/common/step/step_batch.h): the best candidates in order, the count of logits that
// are not finite, and the highest logit with the sum of exp(logit - highest), from which the host
// makes log_sum_exp; and the token guessed from the candidates, for the next step and for the host.
// One workgroup an output.  MASKED: outputs may have masks, and so fewer candidates than logits.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "guess.glsl"
#include "push/head_merge.glsl"

layout(constant_id = 3) const uint MASKED = 0;

uint most_candidates() { return min(load_uint(step + kNumCandidatesOffset), kMaxCandidates); }
uint64_t slice_address(uint i) {
  return slices + (uint64_t(gl_WorkGroupID.x) * num_slices + i) * kResultBytes;
}

uvec2 load_item(uint i) {
  uint most = most_candidates();
  uint64_t slice = slice_address(i / most);
  uint index = i % most;
  if (index >= load_uint(slice + 8)) return uvec2(0, kNoToken);
  return unpack32(Long(slice + 16 + index * 8).v).yx;
}

void main() {
  uint local = gl_LocalInvocationIndex, threads = gl_WorkGroupSize.x;
  uint index = gl_WorkGroupID.x + first_output;
  if (index >= num_outputs(step)) return;
  float highest = minus_infinity(), nonfinite = 0.0, sum = 0.0, found = 0.0;
  for (uint i = local; i < num_slices; i += threads) {
    highest = max(highest, load_float(slice_address(i)));
    if (MASKED != 0) found += float(load_uint(slice_address(i) + 8));
    nonfinite += float(load_uint(slice_address(i) + 12));
  }
  highest = workgroup_max(highest);
  nonfinite = workgroup_sum(nonfinite);
  for (uint i = local; i < num_slices; i += threads) {
    float slice_highest = load_float(slice_address(i));
    if (slice_highest > minus_infinity()) {
      sum += load_float(slice_address(i) + 4) * exp(slice_highest - highest);
    }
  }
  sum = workgroup_sum(sum);
  uint most = most_candidates();
  uint wanted = min(most, vocab_size - uint(nonfinite));
  // Each slice has as many as are wanted, or all that it can have.
  if (MASKED != 0) wanted = min(wanted, uint(workgroup_sum(found)));
  find_top(num_slices * most, wanted, highest);
  uint64_t row = logits + uint64_t(gl_WorkGroupID.x) * logit_stride * 4;
  uint64_t result = results + uint64_t(index) * kResultBytes;
  for (uint i = local; i < wanted; i += threads) {
    uint token = found_tokens[i], bits = load_uint(row + uint64_t(token) * 4);
    uint key = sortable(bits), rank = 0;
    for (uint j = 0; j < wanted; ++j) {
      uint other = sortable(found_bits[j]);
      rank += other > key || (other == key && found_tokens[j] < token) ? 1 : 0;
    }
    store_candidate(result, rank, token, bits);
    ranked_tokens[rank] = token;
    ranked_logits[rank] = uintBitsToFloat(bits);
  }
  uint guess = guess_token(output_draw(step, index), wanted);
  if (local == 0) {
    uint target = output_target(step, index);
    float target_logit = target == kNoToken ? 0.0 : load_float(row + uint64_t(target) * 4);
    Float(result + 4).v = target_logit;
    Word(result + 8).v = wanted;
    Word(result + 12).v = uint(nonfinite);
    Float(sums + index * 8).v = highest;
    Float(sums + index * 8 + 4).v = sum;
    Word(guesses + index * 4).v = guess;
    Word(guessed + index * 4).v = guess;
  }
}
