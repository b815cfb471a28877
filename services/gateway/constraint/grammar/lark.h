// Grammars in Lark's form.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/constraint/grammar/grammar_source.h"

namespace tandem::gateway::constraint {

// The root is the rule "start".  Supported: rules, terminals, strings (with the flag i), regular
// expressions (with the flags i and s), ranges, groups, [optional], ?, *, +, ~n, ~n..m, aliases,
// priorities, %ignore and %import of common's terminals.
//
// There is no lexer of longest matches: a text fits when some way to cut it into terminals does.
//
// INVALID_ARGUMENT with line and column: wrong syntax, a rule that is used and not given, nesting
// deeper than 200, templates, %declare, %extend, %override, other imports.
// RESOURCE_EXHAUSTED: too large, or past `deadline`.
absl::StatusOr<GrammarSource> ParseLark(std::string_view text,
                                        absl::Time deadline = absl::InfiniteFuture());

}  // namespace tandem::gateway::constraint
