#include "services/npu_worker/emulator/driver/fault_plan.h"

namespace tandem::npu::emulator {

FaultPlan::CommandFault FaultPlan::NextCommand() {
  const int64_t number = num_commands_++;
  CommandFault fault;
  const int64_t hangs = number - faults_.hang_after;
  if (faults_.hang_ms > 0 && hangs >= 0 &&
      (faults_.hang_count == 0 || hangs < faults_.hang_count)) {
    fault.hang = absl::Milliseconds(faults_.hang_ms);
  }
  fault.lose_interrupt = number + 1 == faults_.lost_interrupt;
  fault.fails = faults_.error_after > 0 && number == faults_.error_after;
  return fault;
}

bool FaultPlan::RefusesNextSubmission() { return ++num_submissions_ == faults_.refuse_submit; }

bool FaultPlan::LosesNextMessage() { return ++num_messages_ == faults_.firmware_timeout; }

bool FaultPlan::IsGone(bool submits) {
  if (submits && faults_.gone_after > 0 && num_commands_ >= faults_.gone_after) is_gone_ = true;
  return is_gone_;
}

}  // namespace tandem::npu::emulator
