// Texts through constraints, for tests.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/gateway/constraint/constraint.h"
#include "services/gateway/constraint/constraint_source.h"

namespace tandem::gateway::constraint {

absl::StatusOr<std::shared_ptr<Constraint>> MakeConstraint(const ConstraintSource& source,
                                                           std::shared_ptr<const TokenTrie> trie);

// Whether the whole of `text` is accepted, taken as the longest tokens.
absl::StatusOr<bool> Accepts(Constraint& constraint, const TokenTrie& trie, std::string_view text);

// A text of tokens drawn from the masks, an end token as soon as `patience` tokens were written and
// one is allowed.  Nothing where it is not complete after `max_tokens`.
// Errors: those of the constraint; INTERNAL: a mask without tokens, or a token of a mask that
// Advance refuses.
absl::StatusOr<std::optional<std::string>> RandomWalk(Constraint& constraint, const TokenTrie& trie,
                                                      std::mt19937& random, int patience,
                                                      int max_tokens);

}  // namespace tandem::gateway::constraint
