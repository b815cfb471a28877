// The emulated NPU behind its driver: what all processes share.  (All of one process: clients of
// this class; another process's contexts are injected.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/npu_worker/emulator/driver/columns.h"
#include "services/npu_worker/emulator/driver/fault_plan.h"
#include "services/npu_worker/emulator/driver/profile.h"
#include "services/npu_worker/emulator/executor.h"

namespace tandem::npu::emulator {

// Thread-safe.
class DriverDevice {
 public:
  // Makes what executes the commands of one context of so many columns.  `configuration`: of the
  // array, as the context's xclbin has it; empty until the process gives one.
  using HandlerFactory =
      std::function<CommandHandler(std::span<const std::byte> configuration, uint32_t num_columns)>;

  DriverDevice(const DriverProfile& profile, Faults faults, HandlerFactory make_handler);

  const DriverProfile& profile() const { return profile_; }
  FaultPlan& faults() { return faults_; }
  CommandHandler MakeHandler(std::span<const std::byte> configuration, uint32_t num_columns) const {
    return make_handler_(configuration, num_columns);
  }

  // Columns for a context.  Errors of Columns::Acquire; ETIME, and ENODEV from then on: the
  // firmware does not answer.
  Errno AcquireColumns(uint32_t width, uint32_t* first) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReleaseColumns(uint32_t first, uint32_t width) ABSL_LOCKS_EXCLUDED(mutex_);
  // Another message to the firmware.
  Errno TellFirmware(const char* message) ABSL_LOCKS_EXCLUDED(mutex_);
  uint32_t num_contexts() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Errno Message(const char* message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DriverProfile profile_;
  FaultPlan faults_;
  const HandlerFactory make_handler_;
  mutable Mutex mutex_;
  Columns columns_ ABSL_GUARDED_BY(mutex_);
  bool firmware_answers_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace tandem::npu::emulator
