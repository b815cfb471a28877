// When to choose the next step, while one runs.
//
// The device goes on without a pause if it has the next step when the running one ends.  A step
// that is chosen earlier only makes requests wait that come in between: they are in the one after.
//
//   device  | step 1                        | step 2                        |
//   gateway |........ waits ........| lead  |........ waits ........| lead  |
//                                   ^ chooses 2                     ^ chooses 3
//
// The running step takes at least as long as the shortest of the recent steps that were no larger.
// The lead covers, before its end, the way to the device and a reserve:
//   - from the end of the wait until the step is sent: measured, wake-ups that come late included
//   - the messages: measured while one step alone is under way
//   - a reserve of 300 us, or a sixteenth of the step if that is longer
// If a step ends sooner than any before, the device waits once for the difference, and the next
// estimate knows.  A step that is smaller than all recent ones has its follower chosen at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "services/common/step/step_batch.h"

namespace tandem::gateway {

// What a step's time grows with.
struct StepSize {
  uint32_t num_rows = 0;
  uint32_t num_outputs = 0;
  uint32_t table_len = 0;  // of the block tables, which grow with the contexts

  static StepSize Of(const StepHeader& header) {
    return {header.num_rows, header.num_outputs, header.table_len};
  }
};

// Pure data: no clock.  Single-thread.
class StepPacer {
 public:
  using Duration = std::chrono::nanoseconds;

  // How long after a step began the next one is to be chosen; zero: at once.
  Duration Delay(const StepSize& size) const;

  // A step ended; zero: the worker does not say how long its device took.
  void StepRan(const StepSize& size, Duration device_time);
  // What a call took beyond the worker's own time, while no other was under way.
  void CallTook(Duration round_trip);
  // From the end of a Delay until the step had been sent.
  void SendingTook(Duration time);

 private:
  struct Ran {
    StepSize size;
    Duration device_time;
  };
  // Zero: not known.
  Duration ShortestLike(const StepSize& size) const;

  std::deque<Ran> recent_;  // the latest last
  Duration sending_{0};     // the longest, and less with every step
  Duration round_trip_{0};  // moving average
};

// A StepPacer by the clock: for executors with a depth of two.  Single-thread.
class StepTimer {
 public:
  using Clock = std::chrono::steady_clock;

  // Waits until the step after one of `size`, which began at `began`, is to be chosen.
  void WaitUntilDue(const StepSize& size, Clock::time_point began);
  // A step has been submitted.
  void Sent();
  StepPacer& pacer() { return pacer_; }

 private:
  StepPacer pacer_;
  std::optional<Clock::time_point> due_;  // until when the wait for the step was; none: at once
};

}  // namespace tandem::gateway
