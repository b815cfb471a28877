// A schema's values by shape: what the compiler makes of each set of schemas before it writes
// rules.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/constraint/schema/schema_check.h"
#include "services/gateway/constraint/schema/schema_clauses.h"
#include "services/gateway/constraint/schema/schema_strings.h"

namespace tandem::gateway::constraint {

using ShapeId = uint32_t;

struct ArrayShape {
  std::vector<ShapeId> prefix;
  ShapeId rest = 0;
  uint32_t min = 0;
  uint32_t max = UINT32_MAX;
};

struct ObjectShape {
  struct Property {
    std::string name;
    ShapeId value = 0;
    bool required = false;
  };
  struct Extra {
    RegexId key = kNothing;  // between the quotes
    ShapeId value = 0;
  };
  std::vector<Property> properties;
  std::vector<Extra> extras;
  uint32_t min = 0;
  uint32_t max = UINT32_MAX;
};

// A value is one of the scalars' texts, an array or an object of these kinds.
struct ValueShape {
  RegexId scalars = kNothing;
  std::vector<ArrayShape> arrays;
  std::vector<ObjectShape> objects;
  bool complete = false;  // whether some text of it ends; set by PruneShapes
};

// Finds the shapes of a document's schemas, from the root on.  Single-thread, used once.
class SchemaShapes {
 public:
  SchemaShapes(const SchemaDocument& document, bool coerce_one_of, absl::Time deadline,
               RegexArena& arena);

  // All shapes; the root's is number 0.
  absl::StatusOr<std::vector<ValueShape>> Run();

 private:
  // The number of the shape of what fits all of `schemas`; made later.
  ShapeId Shape(const SchemaSet& schemas);
  // The shape of one given value.
  ShapeId ValueOf(const OrderedJson& value);
  absl::Status Make(ShapeId id, const SchemaSet& schemas);
  absl::Status AddClause(const SchemaSet& clause, ValueShape& shape);
  absl::Status AddValues(const SchemaFacts& facts, ValueShape& shape);
  absl::Status AddExtras(const SchemaFacts& facts, const SchemaSet& clause, ObjectShape& object);
  void AddValue(const OrderedJson& value, ValueShape& shape);
  absl::Status CheckBudget();

  const SchemaDocument& document_;
  const absl::Time deadline_;
  RegexArena& arena_;
  SchemaClauses clauses_;
  SchemaStrings strings_;
  SchemaCheck check_;
  absl::flat_hash_map<SchemaSet, ShapeId> ids_;  // by sorted schemas
  absl::flat_hash_map<const OrderedJson*, ShapeId> value_ids_;
  struct Todo {
    SchemaSet schemas;
    const OrderedJson* value = nullptr;  // else a set of schemas
  };
  std::vector<Todo> todo_;  // [shape]
};

// Marks the shapes that have a complete text and removes what has none from the others.
void PruneShapes(std::vector<ValueShape>& shapes);

}  // namespace tandem::gateway::constraint
