// The strings of a schema: patterns, formats and lengths as regular languages.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "services/gateway/constraint/regex/regex_arena.h"
#include "services/gateway/constraint/schema/schema_facts.h"

namespace tandem::gateway::constraint {

// Single-thread.
class SchemaStrings {
 public:
  // Borrowed; must outlive this.
  SchemaStrings(const SchemaDocument& document, RegexArena& arena)
      : document_(document), arena_(arena) {}

  // The texts between the quotes of the strings that fit `facts`, which are those of `clause`.
  // INVALID_ARGUMENT with the path: a pattern that is wrong or not supported.
  absl::StatusOr<RegexId> Body(const SchemaFacts& facts, const SchemaSet& clause);
  // The texts of keys that `pattern` matches, for a patternProperties of `schema`.
  absl::StatusOr<RegexId> KeyBody(const std::string& pattern, const OrderedJson& schema);

  // Whether `pattern` matches anywhere within `text`; `whole`: all of it.
  absl::StatusOr<bool> Matches(const std::string& pattern, const std::string& text,
                               bool whole = false);

 private:
  absl::StatusOr<RegexId> Compiled(const std::string& pattern, bool whole);

  const SchemaDocument& document_;
  RegexArena& arena_;
  absl::flat_hash_map<std::string, RegexId> compiled_;
  // For Matches: patterns of plain text.
  RegexArena plain_;
  absl::flat_hash_map<std::string, RegexId> plain_compiled_;
};

}  // namespace tandem::gateway::constraint
