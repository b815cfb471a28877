// Whether a given value fits a schema, and whether two clauses have a value in common.
#pragma once

#include "absl/status/statusor.h"
#include "services/gateway/constraint/schema/schema_clauses.h"
#include "services/gateway/constraint/schema/schema_strings.h"

namespace tandem::gateway::constraint {

// Single-thread.
class SchemaCheck {
 public:
  // Borrowed; must outlive this.
  SchemaCheck(const SchemaDocument& document, SchemaClauses& clauses, SchemaStrings& strings,
              RegexArena& arena)
      : document_(document), clauses_(clauses), strings_(strings), arena_(arena) {}

  // Whether `value` fits `schema`, all keywords considered.
  absl::StatusOr<bool> Fits(const OrderedJson& value, const OrderedJson& schema, int depth = 0);
  // Whether it fits what the clause's schemas say of values themselves.
  absl::StatusOr<bool> FitsClause(const OrderedJson& value, const SchemaSet& clause, int depth = 0);
  // The same but for enum and const, with the clause's facts.
  absl::StatusOr<bool> FitsFacts(const OrderedJson& value, const SchemaFacts& facts, int depth = 0);
  // Whether certainly no value fits both.
  absl::StatusOr<bool> Disjoint(const SchemaSet& a, const SchemaSet& b, int depth = 0);

 private:
  absl::StatusOr<SchemaFacts> Facts(const SchemaSet& clause);
  absl::StatusOr<bool> SetsDisjoint(const SchemaSet& a, const SchemaSet& b, int depth);
  absl::StatusOr<bool> ObjectsDisjoint(const SchemaFacts& a, const SchemaFacts& b, int depth);
  absl::StatusOr<bool> ArraysDisjoint(const SchemaFacts& a, const SchemaFacts& b, int depth);
  absl::StatusOr<bool> FitsString(const std::string& text, const SchemaFacts& facts);
  absl::StatusOr<bool> FitsArray(const OrderedJson& value, const SchemaFacts& facts, int depth);
  absl::StatusOr<bool> FitsObject(const OrderedJson& value, const SchemaFacts& facts, int depth);
  absl::StatusOr<bool> FitsAll(const OrderedJson& value, const SchemaSet& schemas, int depth);

  const SchemaDocument& document_;
  SchemaClauses& clauses_;
  SchemaStrings& strings_;
  RegexArena& arena_;
  uint64_t work_ = 0;
};

}  // namespace tandem::gateway::constraint
