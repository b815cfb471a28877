// The power of the devices of a plan, as workers report it with their answers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/gateway/executor/executor.h"

namespace tandem::gateway {

// What a worker reports, if it can be: not negative, and at most 100 kW.  Otherwise 0, not readable.
double PlausibleWatts(double reported);

// Joules of a step, by worker of the plan: its device time there times the power; 0: not readable.
std::vector<double> JoulesOf(const Plan& plan, std::span<const SegmentTiming> timings);

// The mean of the power that workers report over several steps.  Pure data, single-thread.
class MeanPower {
 public:
  explicit MeanPower(const Plan& plan) : segments_(plan.segments), workers_(plan.workers.size()) {}

  void Add(std::span<const SegmentTiming> timings);
  // Whether every worker that worked has reported it each time.
  bool readable() const;
  // By worker of the plan; 0: not readable, or it has not worked.
  std::vector<double> Watts() const;

 private:
  struct OfWorker {
    double sum = 0.0;
    uint32_t reports = 0;
    bool missing = false;
  };
  std::vector<Segment> segments_;
  std::vector<OfWorker> workers_;
};

}  // namespace tandem::gateway
