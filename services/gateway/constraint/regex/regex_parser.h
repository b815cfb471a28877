// Parses regular expressions in RE2's syntax.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "services/gateway/constraint/regex/expression.h"

namespace tandem::gateway::constraint {

struct RegexOptions {
  bool ignore_case = false;          // as (?i)
  bool dot_matches_newline = false;  // as (?s)
  // ECMA-262's spellings that RE2 lacks and JSON Schema's patterns have: \uXXXX, \cX, \/ and
  // named classes such as \p{Letter}.
  bool ecma = false;
};

// The expression of `pattern` in `pool`.  Supported: literals and escapes, classes ([a-z], \d \w
// \s, \p{..}, [[:alpha:]]), groups (captures and flags i, s, U), alternatives, * + ? {n} {n,} {n,m}
// (lazy forms match the same texts), ^ $ \A \z at text boundaries. INVALID_ARGUMENT with the byte
// offset: wrong syntax, nesting deeper than 200, a repeat above 65,536, and what no automaton here
// decides: back-references, look-around, \b, \B, \C, (?m).
absl::StatusOr<ExpressionId> ParseRegex(std::string_view pattern, const RegexOptions& options,
                                        ExpressionPool& pool);

}  // namespace tandem::gateway::constraint
