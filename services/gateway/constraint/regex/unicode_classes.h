// Unicode's classes and simple case folding, with RE2's tables as the source of truth for classes.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/gateway/constraint/regex/code_point_set.h"

namespace tandem::gateway::constraint {

// The code points of \p{name}: a general category ("L", "Lu") or a script ("Greek").  The first use
// of a name takes some milliseconds, later ones none.  Thread-safe.
// INVALID_ARGUMENT: RE2 knows no such class.
absl::StatusOr<std::shared_ptr<const CodePointSet>> UnicodeClass(std::string_view name);

// `set` with every code point that differs from a member in case alone (simple folding).
CodePointSet FoldCase(const CodePointSet& set);

}  // namespace tandem::gateway::constraint
