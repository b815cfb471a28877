// The terminals of Lark's library "common".
#pragma once

#include <optional>
#include <string_view>

namespace tandem::gateway::constraint {

// The regular expression of `name` ("WS", "ESCAPED_STRING"), in RE2's syntax.
std::optional<std::string_view> CommonLarkTerminal(std::string_view name);

}  // namespace tandem::gateway::constraint
