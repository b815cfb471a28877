// Pairs of characters that are neighbours in a vocabulary's pieces.
//
// No piece contains two characters in a row that are neighbours in no piece.  A text can be cut
// between them: its parts, encoded alone, have the same ids.  In most texts words can be cut apart.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace tandem::gateway {

// How pieces spell a space.
inline constexpr std::string_view kPieceSpace = "\xE2\x96\x81";
inline constexpr char32_t kPieceSpaceChar = 0x2581;

// Thread-safe once all pieces are added.
class CharPairs {
 public:
  CharPairs();
  // REQUIRES: `piece` is well-formed UTF-8 of fewer than 65536 bytes.
  void Add(std::string_view piece);

  // The characters `a`, `b` as neighbours.
  struct Pair {
    bool joined = false;   // some piece contains them
    uint16_t longest = 0;  // bytes of the longest piece that starts with them; 0: no piece
  };
  Pair Find(char32_t a, char32_t b) const {
    const auto dense_a = DenseIndex(a), dense_b = DenseIndex(b);
    if (dense_a.has_value() && dense_b.has_value()) return dense_[*dense_a * kDense + *dense_b];
    const auto found = sparse_.find(uint64_t{a} << 32 | uint64_t{b});
    return found == sparse_.end() ? Pair() : found->second;
  }

 private:
  // ASCII and the space have a table of their own.
  static constexpr uint32_t kDense = 129;
  static std::optional<uint32_t> DenseIndex(char32_t c) {
    if (c < 128) return c;
    if (c == kPieceSpaceChar) return 128;
    return std::nullopt;
  }

  std::vector<Pair> dense_;                     // [kDense, kDense]
  absl::flat_hash_map<uint64_t, Pair> sparse_;  // by a << 32 | b
};

// The character that `text` begins with, whose bytes are `length`.
// REQUIRES: `text` is well-formed UTF-8 and not empty.
inline char32_t FirstChar(std::string_view text, size_t length) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (length == 1) return byte(0);
  char32_t c = byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) c = c << 6 | (byte(i) & 0x3Fu);
  return c;
}

}  // namespace tandem::gateway
