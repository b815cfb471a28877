// Which kinds of stages a segment's time on the device goes to, from a step now and then.
#pragma once

#include <array>
#include <cstdint>

#include "services/common/plan/stage.h"

namespace tandem::gpu {

// Noting when each stage ends costs the device about a microsecond a stage, and where phases are
// counted their overlap too: a third of a step.  So most steps note their beginning and end alone,
// and what a step spent is shared out as the last one was that noted every stage.
class StageShares {
 public:
  using ByKind = std::array<uint64_t, kNumStageKinds>;  // nanoseconds, by StageKind
  static constexpr uint64_t kPeriodNs = 1'000'000'000;

  // Whether the next step is to note every stage: the first, and one whenever steps have spent
  // kPeriodNs since.
  bool NextIsWhole() {
    if (since_ns_ < kPeriodNs) return false;
    since_ns_ = 0;
    return true;
  }
  void Learn(const ByKind& spent) { shares_ = spent; }
  // Shares out the `total_ns` of a step; the parts add up to it.  REQUIRES Learn has been called.
  ByKind Share(uint64_t total_ns);

 private:
  uint64_t since_ns_ = kPeriodNs;
  ByKind shares_ = {};
};

}  // namespace tandem::gpu
