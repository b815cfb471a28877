#include "services/gateway/http/json_guard.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/str_format.h"
#include "services/common/base/utf8.h"
#include "services/gateway/http/hex_digit.h"

namespace tandem::gateway {
namespace {

// The code unit of the escape at `at` ("\uXXXX"), if it is one.
std::optional<uint32_t> CodeUnit(std::string_view json, size_t at) {
  if (at + 6 > json.size() || json[at] != '\\' || json[at + 1] != 'u') return std::nullopt;
  uint32_t unit = 0;
  for (size_t i = at + 2; i < at + 6; ++i) {
    const int digit = HexValue(json[i]);
    if (digit < 0) return std::nullopt;
    unit = unit << 4 | static_cast<uint32_t>(digit);
  }
  return unit;
}

bool IsHigh(std::optional<uint32_t> unit) { return unit && *unit >= 0xD800 && *unit < 0xDC00; }
bool IsLow(std::optional<uint32_t> unit) { return unit && *unit >= 0xDC00 && *unit < 0xE000; }

}  // namespace

absl::Status CheckJson(std::string_view json, int max_depth) {
  if (const auto bad = FindInvalidUtf8(json)) {
    return absl::InvalidArgumentError(absl::StrFormat("JSON: byte %d is not UTF-8", *bad));
  }
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\') {
      const auto unit = CodeUnit(json, i);
      const bool pair = IsHigh(unit) && IsLow(CodeUnit(json, i + 6));
      if (!pair && (IsHigh(unit) || IsLow(unit))) {
        return absl::InvalidArgumentError(
            absl::StrFormat("JSON: the escape at byte %d is half a surrogate pair", i));
      }
      i += pair ? 11 : 1;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '{' || c == '[')) {
      if (++depth > max_depth) {
        return absl::InvalidArgumentError(
            absl::StrFormat("JSON: nested deeper than %d at byte %d", max_depth, i));
      }
    } else if (!in_string && (c == '}' || c == ']')) {
      --depth;
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway
