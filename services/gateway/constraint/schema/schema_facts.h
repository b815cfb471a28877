// What a clause says of values, keyword by keyword put together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/constraint/schema/json_numbers.h"
#include "services/gateway/constraint/schema/schema_clauses.h"
#include "services/gateway/constraint/schema/schema_document.h"

namespace tandem::gateway::constraint {

// Kinds of values; a number is an integer or a fraction.
enum JsonKind : unsigned {
  kNullKind = 1,
  kBooleanKind = 2,
  kIntegerKind = 4,
  kFractionKind = 8,
  kNumberKind = kIntegerKind | kFractionKind,
  kStringKind = 16,
  kArrayKind = 32,
  kObjectKind = 64,
  kAllKinds = 127,
};

struct SchemaFacts {
  unsigned kinds = kAllKinds;
  // The values that enum and const leave.
  std::optional<std::vector<const OrderedJson*>> values;

  NumberBounds numbers;

  uint32_t min_length = 0;
  uint32_t max_length = UINT32_MAX;
  std::vector<std::string> patterns;  // anywhere within the text
  std::vector<std::string> formats;

  std::vector<SchemaSet> prefix;  // of the first items
  SchemaSet rest;                 // of the items after them
  uint32_t min_items = 0;
  uint32_t max_items = UINT32_MAX;

  struct Property {
    std::string name;
    SchemaSet schemas;
    bool required = false;
  };
  std::vector<Property> properties;
  // A pattern of patternProperties; schemas[i] is schema i's value of it, or null.
  struct Pattern {
    std::string pattern;
    std::vector<const OrderedJson*> schemas;
  };
  std::vector<Pattern> patterns_of_keys;
  std::vector<const OrderedJson*> additional;  // [clause] additionalProperties, or null
  uint32_t min_properties = 0;
  uint32_t max_properties = UINT32_MAX;
};

// Whether `pattern` (JSON Schema's) matches anywhere within `text`.
using PatternMatcher =
    std::function<absl::StatusOr<bool>(const std::string& pattern, const std::string& text)>;

// The facts of `clause`, whose keywords were checked (schema_keywords.h).
// INVALID_ARGUMENT with the path: a value that is not supported (multipleOf).
absl::StatusOr<SchemaFacts> CollectFacts(const SchemaSet& clause, const SchemaDocument& document,
                                         const PatternMatcher& matches);

// The kind of a value: one bit.
unsigned KindOf(const OrderedJson& value);
// Whether JSON Schema holds the values equal: 1 and 1.0 are, the order of members does not count.
bool SameValue(const OrderedJson& a, const OrderedJson& b);

}  // namespace tandem::gateway::constraint
