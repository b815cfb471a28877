// What steps of the loaded plan take.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/placement/placement_costs.h"

namespace tandem::gateway {

// The load that placements are judged by where steps have these limits: a prompt and an answer of
// usual lengths, or of what the context holds.
ReferenceLoad LoadWithin(const StepLimits& limits, bool many_streams);

// Where the time of a step went.
StepSeconds SecondsOf(const Plan& plan, std::span<const SegmentTiming> timings);

// Runs a handful of steps and returns the shortest times seen: part of a prompt, one stream, and as
// many streams as the limits have.  The KV cache then has rows that no request wrote.  Errors as
// Executor::Wait.  REQUIRES no step under way.
absl::StatusOr<PlacementCosts> TryPlacement(Executor& executor, const ReferenceLoad& load);

}  // namespace tandem::gateway
