// From expressions to nodes of a RegexArena.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/gateway/constraint/regex/expression.h"
#include "services/gateway/constraint/regex/regex_arena.h"
#include "services/gateway/constraint/regex/regex_parser.h"

namespace tandem::gateway::constraint {

// An expression without anchors: where `search`, the texts that `expression` matches anywhere
// within, else those it matches as a whole. INVALID_ARGUMENT: the anchors make it too large.
absl::StatusOr<ExpressionId> ResolveAnchors(ExpressionId expression, bool search,
                                            ExpressionPool& pool);

// The node of an expression without anchors.  `rule` gives the node of a kRule.
RegexId BuildRegex(const ExpressionPool& pool, ExpressionId expression, Spelling spelling,
                   const std::function<RegexId(uint32_t)>& rule, RegexArena& arena);

// The node of a pattern: the texts it matches as a whole or, where `search`, anywhere within.
absl::StatusOr<RegexId> CompilePattern(std::string_view pattern, const RegexOptions& options,
                                       bool search, Spelling spelling, RegexArena& arena);

}  // namespace tandem::gateway::constraint
