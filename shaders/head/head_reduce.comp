// From one output's logits to its OutputResult (services/common/worker/step_batch.h): the highest
// logit and the sum of exp(logit - highest), from which the host makes log_sum_exp, the count of
// logits that are not finite, and the best candidates, exactly: logits descending, ties by lower
// token.
//
// Candidates are found by radix selection: a logit and its token form a 64-bit key whose order is
// the candidates' order, and eight bits at a time are fixed by a histogram until as many keys lie
// at or above the prefix as are wanted.  One workgroup an output.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "reduce.glsl"
#include "step.glsl"
layout(local_size_x_id = 0) in;
const uint kMaxCandidates = 128;
const uint kResultBytes = 16 + 8 * kMaxCandidates;
layout(push_constant, scalar) uniform Push {
  uint64_t step;
  uint64_t logits;   // float32 [outputs of the tile, logit_stride]
  uint64_t results;  // OutputResult [outputs]
  uint64_t sums;     // float32 [outputs, 2]: highest logit, sum of exp(logit - highest)
  uint vocab_size;
  uint logit_stride;  // even
  uint first_output;
};

shared uint histogram[256];
shared uint num_found;
shared uint found_tokens[kMaxCandidates];
shared uint found_keys[kMaxCandidates];
shared float subgroup_highest[kMaxSubgroups];
shared uint chosen_digit, chosen_above, chosen_count;

bool is_finite(uint bits) { return (bits & 0x7F800000u) != 0x7F800000u; }
// Order of unsigned integers = order of floats; what is not finite lowest, the two zeros alike.
uint sortable(uint bits) {
  if (!is_finite(bits)) return 0;
  if (bits == 0x80000000u) bits = 0;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

float workgroup_max(float value) {
  value = subgroup_max(value);
  if (gl_NumSubgroups == 1) return value;
  barrier();
  if (gl_SubgroupInvocationID == 0) subgroup_highest[gl_SubgroupID] = value;
  barrier();
  for (uint i = 0; i < gl_NumSubgroups; ++i) value = max(value, subgroup_highest[i]);
  return value;
}

// Keys of two neighbouring logits; the second is beyond the row where the row ends with the first.
uvec2 load_keys(uint64_t row, uint i) {
  uvec2 bits = unpack32(Long(row + uint64_t(i) * 4).v);
  return uvec2(sortable(bits.x), sortable(bits.y));
}
uint digit_of(uint key, uint token, uint pass) {
  return (pass < 4 ? key >> (24 - 8 * pass) : ~token >> (56 - 8 * pass)) & 255;
}
// The bits above those of `pass`, both words: what earlier passes have fixed.
bool has_prefix(uint key, uint token, uint pass, uint key_prefix, uint token_prefix) {
  if (pass == 0) return true;
  if (pass <= 4) return pass == 4 ? key == key_prefix : (key ^ key_prefix) >> (32 - 8 * pass) == 0;
  return key == key_prefix && (~token ^ token_prefix) >> (64 - 8 * pass) == 0;
}

void main() {
  uint local = gl_LocalInvocationIndex, threads = gl_WorkGroupSize.x;
  uint index = gl_WorkGroupID.x + first_output;
  if (index >= num_outputs(step)) return;
  uint64_t row = logits + uint64_t(gl_WorkGroupID.x) * logit_stride * 4;
  uint64_t result = results + uint64_t(index) * kResultBytes;
  uint wanted = min(load_uint(step + kNumCandidatesOffset), min(kMaxCandidates, vocab_size));

  float highest = uintBitsToFloat(0xFF800000u);
  float nonfinite = 0.0;
  for (uint i = local * 2; i < vocab_size; i += threads * 2) {
    uvec2 bits = unpack32(Long(row + uint64_t(i) * 4).v);
    bool x = is_finite(bits.x), y = i + 1 < vocab_size && is_finite(bits.y);
    nonfinite += (x ? 0.0 : 1.0) + (y || i + 1 >= vocab_size ? 0.0 : 1.0);
    if (x) highest = max(highest, uintBitsToFloat(bits.x));
    if (y) highest = max(highest, uintBitsToFloat(bits.y));
  }
  highest = workgroup_max(highest);
  nonfinite = workgroup_sum(nonfinite);
  wanted = min(wanted, vocab_size - uint(nonfinite));
  float sum = 0.0;
  for (uint i = local * 2; i < vocab_size; i += threads * 2) {
    uvec2 bits = unpack32(Long(row + uint64_t(i) * 4).v);
    if (is_finite(bits.x)) sum += exp(uintBitsToFloat(bits.x) - highest);
    if (i + 1 < vocab_size && is_finite(bits.y)) sum += exp(uintBitsToFloat(bits.y) - highest);
  }
  sum = workgroup_sum(sum);

  if (local == 0) {
    num_found = 0;
    found_tokens[0] = vocab_size;
    found_keys[0] = sortable(floatBitsToUint(highest));
  }
  uint key_prefix = 0, token_prefix = 0, remaining = wanted, pass = 0;
  if (wanted == 1) pass = 8;  // the highest logit it is: see below
  for (; pass < 8 && wanted > 0; ++pass) {
    for (uint i = local; i < 256; i += threads) histogram[i] = 0;
    barrier();
    for (uint i = local * 2; i < vocab_size; i += threads * 2) {
      uvec2 keys = load_keys(row, i);
      [[unroll]] for (uint e = 0; e < 2; ++e) {
        if (i + e < vocab_size && has_prefix(keys[e], i + e, pass, key_prefix, token_prefix)) {
          atomicAdd(histogram[digit_of(keys[e], i + e, pass)], 1);
        }
      }
    }
    barrier();
    if (local == 0) {
      uint above = 0, digit = 255;
      while (digit > 0 && above + histogram[digit] < remaining) above += histogram[digit--];
      chosen_digit = digit;
      chosen_above = above;
      chosen_count = histogram[digit];
    }
    barrier();
    if (pass < 4) {
      key_prefix |= chosen_digit << (24 - 8 * pass);
    } else {
      token_prefix |= chosen_digit << (56 - 8 * pass);
    }
    remaining -= chosen_above;
    bool whole = chosen_count == remaining;
    barrier();
    if (whole) break;
  }

  // Everything at or above the prefix: exactly `wanted` keys.  Of one alone: the lowest token
  // that has the highest logit.
  barrier();
  for (uint i = local * 2; i < vocab_size && wanted > 0; i += threads * 2) {
    uvec2 keys = load_keys(row, i);
    [[unroll]] for (uint e = 0; e < 2; ++e) {
      uint key = keys[e], token = i + e;
      if (token >= vocab_size) continue;
      if (wanted == 1) {
        if (key == sortable(floatBitsToUint(highest))) atomicMin(found_tokens[0], token);
      } else if (key > key_prefix || (key == key_prefix && (pass < 4 || ~token >= token_prefix))) {
        uint slot = atomicAdd(num_found, 1);
        if (slot < kMaxCandidates) {
          found_tokens[slot] = token;
          found_keys[slot] = key;
        }
      }
    }
  }
  barrier();
  for (uint i = local; i < wanted; i += threads) {
    uint key = found_keys[i], token = found_tokens[i], rank = 0;
    for (uint j = 0; j < wanted; ++j) {
      uint other = found_keys[j];
      rank += other > key || (other == key && found_tokens[j] < token) ? 1 : 0;
    }
    Long(result + 16 + rank * 8).v = pack64(uvec2(token, load_uint(row + uint64_t(token) * 4)));
  }
  if (local == 0) {
    uint target = output_target(step, index);
    float target_logit = target == kNoToken ? 0.0 : load_float(row + uint64_t(target) * 4);
    Float(result + 4).v = target_logit;
    Word(result + 8).v = wanted;
    Word(result + 12).v = uint(nonfinite);
    Float(sums + index * 8).v = highest;
    Float(sums + index * 8 + 4).v = sum;
  }
}
