// Which command and which message to the firmware goes wrong, counted over the whole device.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "services/npu_worker/emulator/fault_injection.h"

namespace tandem::npu::emulator {

// Thread-safe.
class FaultPlan {
 public:
  explicit FaultPlan(Faults faults) : faults_(faults) {}

  struct CommandFault {
    absl::Duration hang;          // before the command runs
    bool lose_interrupt = false;  // it runs, and the driver does not hear of it
    bool fails = false;           // it does not run, and ends with an error
  };
  CommandFault NextCommand();
  // Whether the driver refuses the next submission.
  bool RefusesNextSubmission();
  // Whether the firmware leaves the next message of the driver unanswered.
  bool LosesNextMessage();
  // Whether the device has left the bus.  It leaves when a command is submitted, so that waits for
  // earlier commands still end.  `submits`: the caller submits one.
  bool IsGone(bool submits);

  const Faults& faults() const { return faults_; }

 private:
  const Faults faults_;
  std::atomic<int64_t> num_commands_ = 0;
  std::atomic<int64_t> num_messages_ = 0;
  std::atomic<int64_t> num_submissions_ = 0;
  std::atomic<bool> is_gone_ = false;
};

}  // namespace tandem::npu::emulator
