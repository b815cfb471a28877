// What a step must be before its rows are used.
#pragma once

#include "absl/status/status.h"
#include "services/common/step/step_batch.h"

namespace tandem {

// The counts are within the limits.  INVALID_ARGUMENT names the count, as CheckStep the entry.
absl::Status CheckStepHeader(const StepHeader& header, const StepLimits& limits);
// Every entry and index.  REQUIRES a header that CheckStepHeader let pass.
absl::Status CheckStep(const StepBatch& batch, const StepLimits& limits);

}  // namespace tandem
