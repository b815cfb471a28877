// UTF-8: finding malformed bytes, and turning a stream of bytes into whole characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// Offset of the first byte of the first sequence in `text` that is not well-formed UTF-8 (overlong
// forms, surrogates and a sequence cut short included); nullopt when there is none.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// Bytes of the character that starts with `lead`, a lead byte of well-formed UTF-8.
inline size_t Utf8Length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Takes bytes as they come and hands out whole characters.  Every maximal subpart of an ill-formed
// sequence becomes one U+FFFD (The Unicode Standard, 3.9, "U+FFFD Substitution of Maximal
// Subparts"; the decoder of the WHATWG Encoding Standard).  Single-thread.
class Utf8Stream {
 public:
  // Appends to `out` every character that `bytes` completes.
  void Append(std::string_view bytes, std::string& out);
  // A sequence cut short becomes one U+FFFD.
  void Finish(std::string& out);

 private:
  char held_[4] = {};  // the sequence under way
  uint8_t num_held_ = 0;
  uint8_t num_needed_ = 0;  // bytes still to come
  uint8_t lower_ = 0x80;    // bounds of the next byte
  uint8_t upper_ = 0xBF;
};

}  // namespace tandem
