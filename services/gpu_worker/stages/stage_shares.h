// Which kinds of stages a segment's time on the device goes to, from a step now and then.
#pragma once

#include <array>
#include <cstdint>

#include "services/common/plan/stage.h"

namespace tandem::gpu {

// A timestamp after every stage costs the device about a microsecond each: 4% of a step of 62
// layers on a card that needs 6.5 ms for it.  So most steps note their beginning and end alone, and
// what a step spent is shared out as the last one was that noted every stage.
class StageShares {
 public:
  using ByKind = std::array<uint64_t, kNumStageKinds>;  // nanoseconds, by StageKind
  static constexpr uint32_t kPeriod = 16;

  // Whether the next step is to note every stage: the first, and then one in kPeriod.
  bool NextIsWhole() { return num_steps_++ % kPeriod == 0; }
  void Learn(const ByKind& spent) { shares_ = spent; }
  // Shares `total_ns` out; the parts add up to it.  REQUIRES Learn has been called.
  ByKind Share(uint64_t total_ns) const;

 private:
  uint32_t num_steps_ = 0;
  ByKind shares_ = {};
};

}  // namespace tandem::gpu
