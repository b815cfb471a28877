#include "services/gateway/constraint/schema/json_style.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/regex/expression.h"
#include "services/gateway/constraint/regex/regex_builder.h"

namespace tandem::gateway::constraint {
namespace {

constexpr uint32_t kMaxIndent = 64;

absl::Status CheckSeparator(const std::string& separator, char mark) {
  int marks = 0;
  for (const char c : separator) {
    if (c == mark) {
      ++marks;
    } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      marks = 2;
    }
  }
  if (marks == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("schema: x-guidance: a separator must be one '%c' and whitespace", mark));
}

ByteSet Spaces(std::string_view bytes) {
  ByteSet set;
  for (const char c : bytes) set.Add(static_cast<uint8_t>(c));
  return set;
}

}  // namespace

absl::StatusOr<JsonStyle> MakeJsonStyle(const JsonLayout& layout, RegexArena& arena) {
  TANDEM_RETURN_IF_ERROR(CheckSeparator(layout.item_separator, ','));
  TANDEM_RETURN_IF_ERROR(CheckSeparator(layout.key_separator, ':'));
  RegexId space = kEmptyText;        // after brackets and separators, before closing brackets
  RegexId before_mark = kEmptyText;  // before separators
  if (!layout.whitespace_pattern.empty()) {
    TANDEM_ASSIGN_OR_RETURN(space, CompilePattern(layout.whitespace_pattern, {.ecma = true}, false,
                                                  Spelling::kPlain, arena));
    space = arena.And(space, arena.Repeat(arena.Bytes(Spaces(" \t\n\r")), 0, kUnlimited));
    if (!arena.node(space).nullable) {
      return absl::InvalidArgumentError(
          "schema: x-guidance: whitespace_pattern must be whitespace and match the empty text");
    }
    before_mark = space;
  } else if (layout.whitespace == JsonWhitespace::kAny) {
    space = arena.Repeat(arena.Bytes(Spaces(" \t\n\r")), 0, kUnlimited);
    before_mark = space;
  } else if (layout.whitespace == JsonWhitespace::kFlexible) {
    const RegexId line =
        arena.Concat(arena.Byte('\n'), arena.Repeat(arena.Bytes(Spaces(" \t")), 0, kMaxIndent));
    space = arena.Optional(arena.Or(arena.Byte(' '), line));
  }
  JsonStyle style;
  // Separators that bring whitespace of their own are followed by the next value itself.
  const bool spaced_items = layout.item_separator.size() > 1;
  const bool spaced_keys = layout.key_separator.size() > 1;
  style.before_value = spaced_items || spaced_keys ? kEmptyText : space;
  style.before_key = space;
  style.comma = arena.Concat(before_mark, arena.Literal(layout.item_separator));
  style.next_key = arena.Concat(style.comma, spaced_items ? kEmptyText : space);
  style.colon = arena.Concat(before_mark, arena.Literal(layout.key_separator));
  style.end_object = arena.Concat(space, arena.Byte('}'));
  style.end_array = arena.Concat(space, arena.Byte(']'));
  style.any_key_order = layout.any_key_order;
  return style;
}

std::string JsonStringText(std::string_view value) {
  std::string text = "\"";
  text += JsonEscaped(value);
  text += '"';
  return text;
}

RegexId ScalarRegex(const OrderedJson& value, RegexArena& arena) {
  if (value.is_string()) return arena.Literal(JsonStringText(value.get_ref<const std::string&>()));
  const std::string text = value.dump();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    // 1.0 and 1 are one value.
    if (number == std::floor(number) && std::abs(number) < 1e15) {
      return arena.Or(arena.Literal(text), arena.Literal(absl::StrFormat("%.0f", number)));
    }
  }
  return arena.Literal(text);
}

}  // namespace tandem::gateway::constraint
