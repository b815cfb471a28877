// What self-tests share: reproducible numbers, and an output that is filled before with a canary, between
// guards.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tandem::npu {

// Reproducible, in [0, 1).
inline float KnownNumber(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t x = a * 0x9E3779B1u ^ b * 0x85EBCA77u ^ c * 0xC2B2AE3Du;
  x = (x ^ x >> 15) * 0x2C1B3C6Du;
  x = (x ^ x >> 12) * 0x297A2D39u;
  return static_cast<float>((x ^ x >> 15) >> 8) * 0x1p-24f;
}

// Words that no answer has.
template <typename T>
struct Fill {
  T guard;   // beside the output
  T canary;  // in it
};

// Checks where an array wrote, after it reported success: an error message if it wrote nothing to the
// output, or to a guard; empty if neither.
template <typename T>
std::string WrongWrites(std::span<const T> output, const std::vector<std::span<const T>>& guards,
                        const Fill<T>& fill) {
  const auto is = [](T value) { return [value](T word) { return word == value; }; };
  if (std::ranges::all_of(output, is(fill.canary))) {
    return "the NPU reported success and wrote nothing.  Its driver has no hardware below it, or "
           "the package was built for another NPU";
  }
  for (const std::span<const T> guard : guards) {
    if (!std::ranges::all_of(guard, is(fill.guard))) return "the NPU wrote outside its output";
  }
  return "";
}

}  // namespace tandem::npu
