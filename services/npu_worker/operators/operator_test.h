// A known answer, asked of an operator before it may serve and while it is idle: over the same commands and
// control code as a step.
//
// A driver without hardware and a package for another NPU may report success; only what lies in the
// output tells.  So the output is filled with a canary, guards are before and behind it, and the
// answer is compared with one computed on the host in float64.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::npu {

// Single-thread.
class OperatorTest {
 public:
  virtual ~OperatorTest() = default;
  // DATA_LOSS: the array's answer is missing, wrong or outside its place, and how.
  // UNAVAILABLE: no answer in time.
  virtual absl::Status Run(absl::Duration timeout) = 0;
};

}  // namespace tandem::npu
