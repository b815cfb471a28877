// A set of byte values.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace tandem::gateway::constraint {

struct ByteSet {
  std::array<uint64_t, 4> words = {};

  static ByteSet All() { return {{~0ull, ~0ull, ~0ull, ~0ull}}; }
  static ByteSet Range(unsigned first, unsigned last) {
    ByteSet set;
    for (unsigned b = first; b <= last; ++b) set.Add(static_cast<uint8_t>(b));
    return set;
  }
  void Add(uint8_t byte) { words[byte >> 6] |= uint64_t{1} << (byte & 63); }
  void Remove(uint8_t byte) { words[byte >> 6] &= ~(uint64_t{1} << (byte & 63)); }
  bool Contains(uint8_t byte) const { return words[byte >> 6] >> (byte & 63) & 1; }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  int size() const {
    int count = 0;
    for (const uint64_t word : words) count += std::popcount(word);
    return count;
  }
  // REQUIRES: not empty.
  uint8_t First() const {
    for (int i = 0;; ++i) {
      if (words[i] != 0) return static_cast<uint8_t>(i * 64 + std::countr_zero(words[i]));
    }
  }
  // REQUIRES: not empty.
  uint8_t Last() const {
    for (int i = 3;; --i) {
      if (words[i] != 0) return static_cast<uint8_t>(i * 64 + 63 - std::countl_zero(words[i]));
    }
  }
  ByteSet operator|(const ByteSet& o) const {
    return {{words[0] | o.words[0], words[1] | o.words[1], words[2] | o.words[2],
             words[3] | o.words[3]}};
  }
  ByteSet operator&(const ByteSet& o) const {
    return {{words[0] & o.words[0], words[1] & o.words[1], words[2] & o.words[2],
             words[3] & o.words[3]}};
  }
  ByteSet operator~() const { return {{~words[0], ~words[1], ~words[2], ~words[3]}}; }
  friend bool operator==(const ByteSet&, const ByteSet&) = default;

  // Calls `visit(byte)` for every member in ascending order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (unsigned i = 0; i < 4; ++i) {
      for (uint64_t word = words[i]; word != 0; word &= word - 1) {
        visit(static_cast<uint8_t>(i * 64 + static_cast<unsigned>(std::countr_zero(word))));
      }
    }
  }
};

}  // namespace tandem::gateway::constraint
