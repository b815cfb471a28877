// Which keywords of JSON Schema are supported, and that their values are of the right kind.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/constraint/schema/schema_document.h"

namespace tandem::gateway::constraint {

// INVALID_ARGUMENT with the path: a keyword that constrains values and is not supported, or a
// keyword whose value is not what JSON Schema asks for.  Looks at `schema` itself, not at schemas
// below it.
absl::Status CheckKeywords(const OrderedJson& schema, const SchemaDocument& document);

// Whether a keyword of `schema` speaks of a value itself, not of other schemas that hold for it.
bool HasAssertions(const OrderedJson& schema);

}  // namespace tandem::gateway::constraint
