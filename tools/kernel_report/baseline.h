// The compiler's figures for the main models' kernels, as a file in the tree.  Every build is compared
// with it.
//
//   { "driver": "Mesa 25.0.7-2+deb13u1",
//     "chips": { "phoenix": { "matvec[...]": [vgprs, waves, latency, inverse throughput,
//                                              main loop's clocks a thousand multiply-adds], ... }
//                                              } }
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/kernel_report/report.h"

namespace tandem::report {

// Of all reports' kernels, each once a chip.
std::string MakeBaseline(const std::vector<ModelReport>& reports);

struct BaselineCheck {
  // A kernel whose estimate is over 5% worse, has fewer subgroups a SIMD, is not in the baseline or
  // has gone from it, a sentence each.
  std::vector<std::string> faults;
  std::string note;  // why nothing was compared; empty: it was
};
// INVALID_ARGUMENT: the file is no baseline.  `name`: for messages.
absl::StatusOr<BaselineCheck> CompareWithBaseline(const std::string& text, const std::string& name,
                                                  const std::vector<ModelReport>& reports);

}  // namespace tandem::report
