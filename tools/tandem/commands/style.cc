#include "tools/tandem/commands/style.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace tandem {
namespace {

const char* Code(Style style) {
  switch (style) {
    case Style::kBold:
      return "\033[1m";
    case Style::kDim:
      return "\033[2m";
    case Style::kGood:
      return "\033[32m";
    case Style::kWarning:
      return "\033[33m";
    case Style::kBad:
      return "\033[1;31m";
  }
  return "";
}

}  // namespace

bool HasStyle(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* terminal = std::getenv("TERM");
  if (terminal == nullptr || std::string_view(terminal) == "dumb") return false;
  return ::isatty(::fileno(stream)) == 1;
}

std::string Styled(std::FILE* stream, Style style, const std::string& text) {
  if (text.empty() || !HasStyle(stream)) return text;
  return Code(style) + text + "\033[0m";
}

}  // namespace tandem
