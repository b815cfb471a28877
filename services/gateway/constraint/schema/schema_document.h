// A JSON Schema as text and references: parsed, its places found and named.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "services/gateway/constraint/schema/json_style.h"

namespace tandem::gateway::constraint {

// Immutable after Parse.
class SchemaDocument {
 public:
  // INVALID_ARGUMENT: not JSON, or beyond the limits for JSON from clients.
  static absl::StatusOr<std::unique_ptr<SchemaDocument>> Parse(std::string_view text);
  SchemaDocument(const SchemaDocument&) = delete;
  SchemaDocument& operator=(const SchemaDocument&) = delete;

  const OrderedJson& root() const { return root_; }
  // What the $ref of `schema` refers to.  INVALID_ARGUMENT: another document, or no such place.
  absl::StatusOr<const OrderedJson*> Resolve(const OrderedJson& schema) const;
  // "#/properties/name" of a value of this document.
  std::string PathOf(const OrderedJson& value) const;
  // INVALID_ARGUMENT: "schema: #/properties/name/not: `what`".  `keyword` may be empty.
  absl::Status Error(const OrderedJson& schema, std::string_view keyword,
                     std::string_view what) const;

 private:
  SchemaDocument() = default;
  // Notes identifiers and anchors below `value`, which belongs to `resource`.
  void Index(const OrderedJson& value, const OrderedJson* resource);
  const OrderedJson* FollowPointer(const OrderedJson& from, std::string_view pointer) const;
  const OrderedJson* Member(const OrderedJson& object, const std::string& name) const;

  OrderedJson root_;
  absl::flat_hash_map<std::string, const OrderedJson*> resources_;  // by $id, without a fragment
  absl::flat_hash_map<const OrderedJson*, const OrderedJson*> resource_of_;  // of schemas with $ref
  absl::flat_hash_map<std::pair<const OrderedJson*, std::string>, const OrderedJson*> anchors_;
  // Members of objects with many, by name.
  mutable absl::flat_hash_map<const OrderedJson*,
                              absl::flat_hash_map<std::string_view, const OrderedJson*>>
      members_;
};

}  // namespace tandem::gateway::constraint
