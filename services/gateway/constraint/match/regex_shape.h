// What the shape of a lexer's state says about its texts, without following them.  Each function looks at a bounded
// number of nodes, and beyond it gives the cautious answer: false, or nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "services/gateway/constraint/regex/regex_arena.h"
#include "services/gateway/constraint/vocabulary/class_tokens.h"

namespace tandem::gateway::constraint {

// Whether a terminal ends at `state` after which the text may go on.
bool EndsTerminal(const RegexArena& arena, RegexId state);

// Whether each text of `id` that ends a terminal has a byte that the class's texts do not have.
bool EndsOutside(const RegexArena& arena, RegexId id, const ClassTokens& tokens);

// A repeat of a class at the beginning of a chain, and the chain after it.
struct RepeatedClass {
  uint32_t regex_class = 0;
  uint32_t min = 0;
  uint32_t max = 0;
  RegexId rest = kEmptyText;
};
std::optional<RepeatedClass> FindRepeat(const RegexArena& arena, RegexId id);

// Any number of code points of a class that has most of all, then a text that is searched for.
struct Search {
  uint32_t regex_class;
  uint32_t needed;  // the least code points of a whole text
};
// Of `id` or of one of its alternatives.
std::optional<Search> FindSearch(const RegexArena& arena, RegexId id);

// Whether any text may follow each text of `id`, as after a search.
bool TakesAnyMore(const RegexArena& arena, RegexId id);

}  // namespace tandem::gateway::constraint
