#include "services/common/base/client_text.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr char kHex[] = "0123456789abcdef";

// Appends `text` byte by byte as `form` writes each, until `max_bytes` are there.
template <class Form>
std::string Bounded(std::string_view text, size_t max_bytes, const Form& form) {
  std::string out;
  out.reserve(std::min(text.size(), max_bytes + 3));
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const char escape[] = {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    const bool visible = byte >= 0x20 && byte < 0x7F;
    std::string_view written = form(c);
    if (written.empty()) {
      written = visible ? std::string_view(&c, 1) : std::string_view(escape, sizeof(escape));
    }
    if (out.size() + written.size() > max_bytes) return out + "...";
    out += written;
  }
  return out;
}

}  // namespace

std::string ClientText(std::string_view text, size_t max_bytes) {
  return Bounded(text, max_bytes, [](char c) { return std::string_view(c == '\\' ? "\\\\" : ""); });
}

std::string FitMessage(std::string_view message, size_t max_bytes) {
  return Bounded(message, max_bytes,
                 [](char c) { return std::string_view(c == '\n' || c == '\t' ? " " : ""); });
}

}  // namespace tandem
