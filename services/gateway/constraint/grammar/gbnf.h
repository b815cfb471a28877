// llama.cpp's grammars (GBNF).
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/constraint/grammar/grammar_source.h"

namespace tandem::gateway::constraint {

// The root is the rule "root".
// INVALID_ARGUMENT with line and column: wrong syntax, a rule that is named and not given, nesting
// deeper than 200, tokens (<[id]>, which no other vocabulary has).
// RESOURCE_EXHAUSTED: too large, or past `deadline`.
absl::StatusOr<GrammarSource> ParseGbnf(std::string_view text,
                                        absl::Time deadline = absl::InfiniteFuture());

}  // namespace tandem::gateway::constraint
