// A grammar as its source has it: named rules over expressions.  From GBNF and Lark alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/constraint/grammar/grammar.h"
#include "services/gateway/constraint/regex/expression.h"

namespace tandem::gateway::constraint {

struct GrammarSource {
  ExpressionPool pool;
  std::vector<std::string> names;    // of rules
  std::vector<ExpressionId> bodies;  // of rules; without anchors
  uint32_t root = 0;
};

// Compiles `source`.  Rules that no recursion passes through become parts of terminals, so that the
// parser sees as few and as large terminals as possible.
// INVALID_ARGUMENT: no text is ever complete (a rule that always needs itself).
// RESOURCE_EXHAUSTED: more than `max_bytes`, or past `deadline`.  CANCELLED: nobody waits.
absl::StatusOr<Grammar> LowerGrammar(const GrammarSource& source, size_t max_bytes,
                                     absl::Time deadline = absl::InfiniteFuture());

}  // namespace tandem::gateway::constraint
