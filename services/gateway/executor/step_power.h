// The power of the devices of a plan, as workers report it with their answers.
#pragma once

#include <span>
#include <vector>

#include "services/gateway/executor/executor.h"

namespace tandem::gateway {

// What a worker reports, if it can be: not negative, and at most 100 kW.  Otherwise 0, not readable.
double PlausibleWatts(double reported);

// Joules of a step, by worker of the plan: its device time there times the power; 0: not readable.
std::vector<double> JoulesOf(const Plan& plan, std::span<const SegmentTiming> timings);

}  // namespace tandem::gateway
