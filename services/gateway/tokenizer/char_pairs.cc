#include "services/gateway/tokenizer/char_pairs.h"

#include <algorithm>

#include "services/common/base/utf8.h"

namespace tandem::gateway {

CharPairs::CharPairs() : dense_(kDense * kDense) {}

void CharPairs::Add(std::string_view piece) {
  const uint16_t bytes = static_cast<uint16_t>(piece.size());
  std::optional<char32_t> before;
  bool first = true;
  while (!piece.empty()) {
    const size_t length = Utf8Length(static_cast<uint8_t>(piece.front()));
    const char32_t c = FirstChar(piece, length);
    piece.remove_prefix(length);
    if (before.has_value()) {
      const auto a = DenseIndex(*before), b = DenseIndex(c);
      Pair& pair = a.has_value() && b.has_value() ? dense_[*a * kDense + *b]
                                                  : sparse_[uint64_t{*before} << 32 | uint64_t{c}];
      pair.joined = true;
      if (first) pair.longest = std::max(pair.longest, bytes);
      first = false;
    }
    before = c;
  }
}

}  // namespace tandem::gateway
