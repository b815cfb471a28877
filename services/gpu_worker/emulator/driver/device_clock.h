// The emulated device's time, for its timestamps.
//
// It advances by what the device executes, not with the host's time: a dispatch takes the longest of
// the chip's units at its highest clock, and a launch; an idle device's clock stands still but for
// one tick a reading, so that no two are equal.  It is a rough clock that gives the same for the
// same work: for predictions see docs/radeon.md.
#pragma once

#include <atomic>
#include <cstdint>

#include "services/gpu_worker/emulator/driver/chip.h"
#include "services/gpu_worker/emulator/isa/dispatch.h"

namespace tandem::rdna {

// Thread-safe.
class DeviceClock {
 public:
  uint64_t Ticks() { return nanoseconds_.fetch_add(kNanosecondsATick) / kNanosecondsATick; }
  void Advance(uint64_t nanoseconds) { nanoseconds_.fetch_add(nanoseconds); }
  uint64_t nanoseconds() const { return nanoseconds_.load(); }

 private:
  static constexpr uint64_t kNanosecondsATick = 1'000'000 / kCounterKhz;
  std::atomic<uint64_t> nanoseconds_ = 1'000'000'000;  // as if it had been on for a second
};

uint64_t DispatchNanoseconds(const Chip& chip, bool wave32, const Counters& counters);
// Of copies and fills by the command processor.
uint64_t CopyNanoseconds(const Chip& chip, uint64_t bytes);

}  // namespace tandem::rdna
