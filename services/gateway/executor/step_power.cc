#include "services/gateway/executor/step_power.h"

#include <cmath>

namespace tandem::gateway {
namespace {

// More than any host draws.
constexpr double kMostWatts = 100e3;

}  // namespace

double PlausibleWatts(double reported) {
  return std::isfinite(reported) && reported >= 0.0 && reported <= kMostWatts ? reported : 0.0;
}

std::vector<double> JoulesOf(const Plan& plan, std::span<const SegmentTiming> timings) {
  std::vector<double> joules(plan.workers.size());
  for (const SegmentTiming& timing : timings) {
    if (timing.segment_index >= plan.segments.size()) continue;
    joules[plan.segments[timing.segment_index].worker] +=
        1e-9 * static_cast<double>(timing.device_ns) * timing.device_watts;
  }
  return joules;
}

}  // namespace tandem::gateway
