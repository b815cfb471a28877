// JSON Schema to a grammar.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/constraint/grammar/grammar.h"
#include "services/gateway/constraint/schema/json_style.h"

namespace tandem::gateway::constraint {

struct SchemaOptions {
  JsonLayout layout;  // what the schema's own x-guidance does not say
  // oneOf as anyOf where a value may match several branches.
  bool coerce_one_of = false;
  size_t max_bytes = size_t{12} << 20;
  absl::Time deadline = absl::InfiniteFuture();  // of WorkTime
};

// The JSON texts of the values that fit `schema` (docs/constraints.md lists the keywords).
// INVALID_ARGUMENT with the path: wrong or unsupported keywords; a schema that no value fits.
// RESOURCE_EXHAUSTED: over max_bytes, over the deadline, too many combinations.
absl::StatusOr<Grammar> CompileSchema(std::string_view schema, const SchemaOptions& options = {});

}  // namespace tandem::gateway::constraint
