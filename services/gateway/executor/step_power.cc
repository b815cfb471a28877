#include "services/gateway/executor/step_power.h"

#include <algorithm>
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

void MeanPower::Add(std::span<const SegmentTiming> timings) {
  for (const SegmentTiming& timing : timings) {
    if (timing.segment_index >= segments_.size() || timing.device_ns == 0) continue;
    OfWorker& worker = workers_[segments_[timing.segment_index].worker];
    worker.sum += timing.device_watts;
    worker.reports += 1;
    worker.missing |= timing.device_watts <= 0.0;
  }
}

bool MeanPower::readable() const { return std::ranges::none_of(workers_, &OfWorker::missing); }

std::vector<double> MeanPower::Watts() const {
  std::vector<double> watts;
  for (const OfWorker& worker : workers_) {
    watts.push_back(worker.missing || worker.reports == 0 ? 0.0 : worker.sum / worker.reports);
  }
  return watts;
}

}  // namespace tandem::gateway
