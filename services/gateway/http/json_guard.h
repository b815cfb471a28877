// Looks at JSON before a parser does, in constant stack and memory.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace tandem::gateway {

inline constexpr int kMaxJsonDepth = 64;

// OK, or INVALID_ARGUMENT with the byte offset: text that is not UTF-8, objects and arrays nested
// deeper than `max_depth`, or \u escapes of half a surrogate pair.  Syntax is the parser's matter.
absl::Status CheckJson(std::string_view json, int max_depth = kMaxJsonDepth);

}  // namespace tandem::gateway
