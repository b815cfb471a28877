// The models that a folder holds.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// A table, or JSON: name, format, weights, their most common number format, layers, context, size;
// or why a file cannot be read.  NOT_FOUND: no such folder.
absl::StatusOr<std::string> DescribeModelFolder(const std::string& folder, bool as_json);

}  // namespace tandem
