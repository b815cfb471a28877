// The formats of JSON Schema as regular expressions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::gateway::constraint {

// The pattern that a whole text of `format` matches, in RE2's syntax.  Nothing for other formats.
std::optional<std::string> FormatPattern(std::string_view format);
// Whether JSON Schema defines `format`.  One that it does not define says nothing of a value.
bool IsStandardFormat(std::string_view format);

}  // namespace tandem::gateway::constraint
