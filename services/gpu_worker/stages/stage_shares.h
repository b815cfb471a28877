// How a segment's time on the device divides among kinds of stages, sampled now and then.
#pragma once

#include <array>
#include <cstdint>

#include "services/common/plan/stage.h"

namespace tandem::gpu {

// A timestamp after each stage costs the device about a microsecond a stage.  Where phases are
// counted it also costs their overlap, a third of a step.  So most steps record only when they
// begin and end, and their time is divided in the proportions of the last step that recorded every
// stage.
class StageShares {
 public:
  using ByKind = std::array<uint64_t, kNumStageKinds>;  // nanoseconds, by StageKind
  static constexpr uint64_t kPeriodNs = 1'000'000'000;

  // Whether the next step records every stage: the first does, and then one for each kPeriodNs that
  // steps have spent.
  bool NextIsWhole() {
    if (since_ns_ < kPeriodNs) return false;
    since_ns_ = 0;
    return true;
  }
  void Learn(const ByKind& spent) { shares_ = spent; }
  // Divides the `total_ns` of a step; the parts add up to it.  REQUIRES Learn has been called.
  ByKind Share(uint64_t total_ns);

 private:
  uint64_t since_ns_ = kPeriodNs;
  ByKind shares_ = {};
};

}  // namespace tandem::gpu
