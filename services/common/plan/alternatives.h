// The placements that a policy leaves open, to be weighed by what their steps take.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "services/common/plan/planner.h"

namespace tandem {

// Under kAuto, with an NPU that can attend: Attend on the NPU, Attend and Out on it, and both on the
// GPU.  Otherwise MakePlan's plan alone.  The first is MakePlan's.  If the model reads pictures and
// some of the plans take them, those alone.  Errors as MakePlan's.
absl::StatusOr<std::vector<Plan>> MakeAlternatives(const ModelConfig& config,
                                                   const std::vector<DType>& weight_dtypes,
                                                   const std::vector<WorkerDescription>& workers,
                                                   const PlacementPolicy& policy);

}  // namespace tandem
