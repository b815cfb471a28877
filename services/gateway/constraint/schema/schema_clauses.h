// The alternatives of a schema: allOf, anyOf, oneOf and $ref resolved into clauses.
//
// A clause is a set of schemas of whose keywords those that speak of a value itself (type,
// properties, minimum, ...) all hold.  A schema is the union of its clauses.
#pragma once

#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "services/gateway/constraint/schema/schema_document.h"

namespace tandem::gateway::constraint {

// In the order in which they were found; none twice.
using SchemaSet = std::vector<const OrderedJson*>;

// Single-thread.
class SchemaClauses {
 public:
  // Tells whether no value fits both clauses (schema_disjoint.h).
  using Disjoint = std::function<absl::StatusOr<bool>(const SchemaSet&, const SchemaSet&)>;

  // Borrowed; must outlive this.  coerce_one_of: oneOf as anyOf where branches overlap.
  SchemaClauses(const SchemaDocument& document, bool coerce_one_of)
      : document_(document), coerce_one_of_(coerce_one_of) {}
  void set_disjoint(Disjoint disjoint) { disjoint_ = std::move(disjoint); }

  // The clauses of values that fit every schema of `schemas`.
  // INVALID_ARGUMENT: a keyword that is not supported or has a wrong value; branches of a oneOf
  // that may both match.  RESOURCE_EXHAUSTED: too many combinations.
  absl::StatusOr<std::vector<SchemaSet>> Expand(const SchemaSet& schemas);

 private:
  struct Todo {
    const OrderedJson* value;
    bool is_choice = false;  // a list of branches; one of them holds
  };
  struct Work {
    std::vector<Todo> todo;  // from the back
    SchemaSet clause;
    absl::flat_hash_set<const OrderedJson*> seen;
  };

  absl::Status Check(const OrderedJson& schema);
  absl::Status CheckOneOf(const OrderedJson& schema, const OrderedJson& branches);

  const SchemaDocument& document_;
  const bool coerce_one_of_;
  Disjoint disjoint_;
  absl::flat_hash_set<const OrderedJson*> checked_;
  absl::flat_hash_set<const OrderedJson*> checked_one_of_;
  int depth_ = 0;
};

}  // namespace tandem::gateway::constraint
