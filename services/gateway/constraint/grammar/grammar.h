// What every source is compiled to: rules over terminals, terminals over bytes.
#pragma once

#include "services/gateway/constraint/grammar/part_arena.h"
#include "services/gateway/constraint/regex/regex_arena.h"

namespace tandem::gateway::constraint {

struct Grammar {
  RegexArena regexes;
  PartArena parts;
  RuleId root = 0;

  size_t memory_bytes() const { return regexes.memory_bytes() + parts.memory_bytes(); }
};

}  // namespace tandem::gateway::constraint
