// How JSON is laid out between its values, and how plain values are written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "services/gateway/constraint/regex/regex_arena.h"

namespace tandem::gateway::constraint {

using OrderedJson = nlohmann::ordered_json;

enum class JsonWhitespace {
  kFlexible,  // nothing, a space, or a new line and up to 64 spaces and tabs, where printers put it
  kCompact,   // none
  kAny,       // as much as JSON allows, everywhere
};

struct JsonLayout {
  JsonWhitespace whitespace = JsonWhitespace::kFlexible;
  std::string whitespace_pattern;  // a regular expression that stands for kAny's whitespace
  std::string item_separator = ",";
  std::string key_separator = ":";
  bool any_key_order = false;  // else in the schema's order
};

// The layout as nodes of an arena.
struct JsonStyle {
  RegexId before_value = kEmptyText;
  RegexId before_key = kEmptyText;  // the first one
  RegexId next_key = kEmptyText;    // separator and what precedes a further key
  RegexId comma = kNothing;         // between items
  RegexId colon = kNothing;
  RegexId end_object = kNothing;
  RegexId end_array = kNothing;
  bool any_key_order = false;
};

// INVALID_ARGUMENT: a bad whitespace pattern, or separators that are not JSON's.
absl::StatusOr<JsonStyle> MakeJsonStyle(const JsonLayout& layout, RegexArena& arena);

// A string or key as it is written, with quotes.
std::string JsonStringText(std::string_view value);
// The texts of a null, boolean, number or string.
RegexId ScalarRegex(const OrderedJson& value, RegexArena& arena);

}  // namespace tandem::gateway::constraint
