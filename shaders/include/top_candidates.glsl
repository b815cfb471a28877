// The best candidates among items, exactly: logits descending, ties by lower token.
//
// Found by radix selection: a logit and its token form a 64-bit key whose order is the candidates'
// order, and eight bits at a time are fixed by a histogram until as many keys lie at or above the
// prefix as are wanted.  One workgroup for one set of items, which the including shader gives by
// load_item.
#ifndef TANDEM_TOP_CANDIDATES_GLSL
#define TANDEM_TOP_CANDIDATES_GLSL
#include "reduce.glsl"
#include "step.glsl"
layout(local_size_x_id = 0) in;  // here, because gl_WorkGroupSize is what it is when it is used

// Item i: the logit's bits and its token, kNoToken where there is no item.
uvec2 load_item(uint i);

shared uint histogram[256];
shared uint digit_sums[16];
shared uint num_found;
shared uint found_tokens[kMaxCandidates];
shared uint found_bits[kMaxCandidates];
shared float subgroup_highest[kMaxSubgroups];
shared uint chosen_digit, chosen_above, chosen_count;

bool is_finite(uint bits) { return (bits & 0x7F800000u) != 0x7F800000u; }
// Order of unsigned integers = order of floats; NaN and infinities lowest, the two zeros alike.
uint sortable(uint bits) {
  if (!is_finite(bits)) return 0;
  if (bits == 0x80000000u) bits = 0;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
float minus_infinity() { return uintBitsToFloat(0xFF800000u); }

float workgroup_max(float value) {
  value = subgroup_max(value);
  if (gl_NumSubgroups == 1) return value;
  barrier();
  if (gl_SubgroupInvocationID == 0) subgroup_highest[gl_SubgroupID] = value;
  barrier();
  for (uint i = 0; i < gl_NumSubgroups; ++i) value = max(value, subgroup_highest[i]);
  return value;
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

// The digit at which the histogram, summed from above, reaches `remaining`; what lies above it.
void choose_digit(uint remaining) {
  for (uint group = gl_LocalInvocationIndex; group < 16; group += gl_WorkGroupSize.x) {
    uint sum = 0;
    [[unroll]] for (uint i = 0; i < 16; ++i) sum += histogram[group * 16 + i];
    digit_sums[group] = sum;
  }
  barrier();
  if (gl_LocalInvocationIndex == 0) {
    uint above = 0, group = 15;
    while (group > 0 && above + digit_sums[group] < remaining) above += digit_sums[group--];
    uint digit = group * 16 + 15;
    while (digit > group * 16 && above + histogram[digit] < remaining) above += histogram[digit--];
    chosen_digit = digit;
    chosen_above = above;
    chosen_count = histogram[digit];
  }
  barrier();
}

// Leaves the best `wanted` of `num_items` items in found_bits and found_tokens, in no order.
// `highest`: the highest finite logit; one candidate is the lowest token that has it.  REQUIRES `wanted` finite items, wanted <= kMaxCandidates.
void find_top(uint num_items, uint wanted, float highest) {
  uint local = gl_LocalInvocationIndex, threads = gl_WorkGroupSize.x;
  if (local == 0) {
    num_found = 0;
    found_tokens[0] = kNoToken;
    found_bits[0] = floatBitsToUint(highest);
  }
  uint key_prefix = 0, token_prefix = 0, remaining = wanted, pass = 0;
  for (; pass < 8 && wanted > 1; ++pass) {
    for (uint i = local; i < 256; i += threads) histogram[i] = 0;
    barrier();
    for (uint i = local; i < num_items; i += threads) {
      uvec2 item = load_item(i);
      uint key = sortable(item.x);
      if (item.y != kNoToken && has_prefix(key, item.y, pass, key_prefix, token_prefix)) {
        atomicAdd(histogram[digit_of(key, item.y, pass)], 1);
      }
    }
    barrier();
    choose_digit(remaining);
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
  barrier();
  if (wanted == 1) {
    uint highest_key = sortable(floatBitsToUint(highest));
    for (uint i = local; i < num_items; i += threads) {
      uvec2 item = load_item(i);
      if (item.y != kNoToken && sortable(item.x) == highest_key) {
        atomicMin(found_tokens[0], item.y);
      }
    }
  } else if (wanted > 1) {
    // Everything at or above the prefix: exactly `wanted` keys.
    for (uint i = local; i < num_items; i += threads) {
      uvec2 item = load_item(i);
      uint key = sortable(item.x);
      bool at_prefix = key == key_prefix && (pass < 4 || ~item.y >= token_prefix);
      if (item.y != kNoToken && (key > key_prefix || at_prefix)) {
        uint slot = atomicAdd(num_found, 1);
        if (slot < kMaxCandidates) {
          found_bits[slot] = item.x;
          found_tokens[slot] = item.y;
        }
      }
    }
  }
  barrier();
}

void store_candidate(uint64_t result, uint rank, uint token, uint bits) {
  Long(result + kCandidatesOffset + rank * 8).v = pack64(uvec2(token, bits));
}
#endif
