#include "services/loader/formats/printable.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/utf8.h"

namespace tandem::loader {

std::string Printable(std::string_view text, size_t max_length) {
  std::string out;
  // No character is longer than 4 bytes, so what follows does not matter.
  text = text.substr(0, std::min(text.size(), max_length) + 4);
  size_t valid_end = FindInvalidUtf8(text).value_or(text.size());
  size_t at = 0;
  while (at < text.size()) {
    if (out.size() >= max_length) return out + "...";
    const auto byte = static_cast<unsigned char>(text[at]);
    if (at == valid_end || byte < 0x20 || byte == 0x7f) {
      out += byte == '\n' ? "\\n" : absl::StrFormat("\\x%02x", byte);
      ++at;
      if (at > valid_end) {
        valid_end = at + FindInvalidUtf8(text.substr(at)).value_or(text.size() - at);
      }
      continue;
    }
    const size_t length = Utf8Length(byte);
    out += text.substr(at, length);
    at += length;
  }
  return out;
}

}  // namespace tandem::loader
