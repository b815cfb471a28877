// Compares a measurement with an earlier one, as `--json` printed it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/tandem/bench/bench_report.h"

namespace tandem {

// A table of the common tests: earlier and current rates, their ratio, and whether they differ by
// more than both deviations together.  Lists the tests that only one has, and other differences
// (model, devices).  `earlier`: the text of the file `name`.  INVALID_ARGUMENT: it is no report.
absl::StatusOr<std::string> Compare(const std::string& earlier, const std::string& name,
                                    const BenchReport& now);

}  // namespace tandem
