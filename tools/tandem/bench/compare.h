// Compares a measurement with an earlier one, as `--json` printed it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/tandem/bench/bench_report.h"

namespace tandem {

// A table of the tests that both have: rates before and now, their ratio, and whether they differ
// by more than both deviations together.  Says which tests only one has, and what else differs
// (model, devices).  `earlier`: the text of the file, which messages call `name`.
// INVALID_ARGUMENT: it is not such a report.
absl::StatusOr<std::string> Compare(const std::string& earlier, const std::string& name,
                                    const BenchReport& now);

}  // namespace tandem
