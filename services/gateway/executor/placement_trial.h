// What steps of the loaded plan take.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/placement/placement_costs.h"
#include "services/gateway/placement/slowdown.h"

namespace tandem::gateway {

// The load that placements are judged by where steps have these limits: a prompt and an answer of
// usual lengths, or of what the context holds.
ReferenceLoad LoadWithin(const StepLimits& limits, bool many_streams);

// Nothing: a step that says little, for it does several things.
std::optional<StepShape> ShapeOf(const StepBatch& step, bool overlaps);

// Where the time of a step went.
StepSeconds SecondsOf(const Plan& plan, std::span<const SegmentTiming> timings);

// Runs a handful of steps and returns the shortest times seen: part of a prompt, one stream, and as
// many streams as the limits have.  `with_power`: and measures the power of each, which takes two
// seconds where it is readable.  The KV cache then has rows that no request wrote.  Errors as
// Executor::Wait.  REQUIRES no step under way.
absl::StatusOr<PlacementCosts> TryPlacement(Executor& executor, const ReferenceLoad& load,
                                            bool with_power);

// Seconds that it takes to copy the KV of so many rows, out of the executor's cache or into it, where it
// then is no request's.  Errors as Executor::CopyKv.  REQUIRES no step under way.
absl::StatusOr<double> TimeKvCopy(Executor& executor, uint32_t rows, bool write);

}  // namespace tandem::gateway
