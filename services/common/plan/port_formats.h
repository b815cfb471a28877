// Number formats of q, k, v and attention where they cross from one worker to another.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "services/common/plan/planner.h"
#include "services/common/plan/stage.h"
#include "services/common/tensor/dtype.h"

namespace tandem {

// FAILED_PRECONDITION names the worker and the stages whose ports do not have `dtype` there, for the first
// of `segments` that passes such a port on or takes one.  `segments`: of the worker.
absl::Status CheckPortDType(const WorkerDescription& worker, std::span<const Segment> segments,
                            DType dtype);

// The format for a plan: the one that its first worker with Attend prefers, of those that all its workers
// have on their side.  Float16 if no such port crosses.
DType ChoosePortDType(const Plan& plan);

}  // namespace tandem
