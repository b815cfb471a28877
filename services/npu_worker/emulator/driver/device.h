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
#include "services/npu_worker/emulator/driver/driver_counts.h"
#include "services/npu_worker/emulator/driver/fault_plan.h"
#include "services/npu_worker/emulator/driver/profile.h"
#include "services/npu_worker/emulator/executor.h"

namespace tandem::npu::emulator {

// Of the array, as a context's xclbin has them: one for each kernel, by its number, the CU.  Empty until the
// process gives them.
using Configurations = std::span<const std::span<const std::byte>>;

// Thread-safe.
class DriverDevice {
 public:
  // Makes what executes the commands of one context of so many columns.  `on_load`: to call for each load of
  // a configuration.
  using HandlerFactory = std::function<CommandHandler(
      Configurations configurations, uint32_t num_columns, std::function<void()> on_load)>;

  DriverDevice(const DriverProfile& profile, Faults faults, HandlerFactory make_handler);

  const DriverProfile& profile() const { return profile_; }
  FaultPlan& faults() { return faults_; }
  // What executes the commands of another context.  The device must outlive it.
  CommandHandler MakeHandler(Configurations configurations, uint32_t num_columns)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Columns for a context.  Errors of Columns::Acquire; ETIME, and ENODEV from then on: the
  // firmware does not answer.
  Errno AcquireColumns(uint32_t width, uint32_t* first) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReleaseColumns(uint32_t first, uint32_t width) ABSL_LOCKS_EXCLUDED(mutex_);
  // Another message to the firmware.
  Errno TellFirmware(const char* message) ABSL_LOCKS_EXCLUDED(mutex_);
  uint32_t num_contexts() const ABSL_LOCKS_EXCLUDED(mutex_);
  void CountSubmission() ABSL_LOCKS_EXCLUDED(mutex_);
  DriverCounts counts() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Errno Message(const char* message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A command of the handler `handler` begins.
  void CountCommand(uint64_t handler) ABSL_LOCKS_EXCLUDED(mutex_);

  const DriverProfile profile_;
  FaultPlan faults_;
  const HandlerFactory make_handler_;
  mutable Mutex mutex_;
  Columns columns_ ABSL_GUARDED_BY(mutex_);
  DriverCounts counts_ ABSL_GUARDED_BY(mutex_);  // but for the contexts that are open
  uint64_t num_handlers_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_handler_ ABSL_GUARDED_BY(mutex_) = 0;  // of a command; 0: none yet
  bool firmware_answers_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace tandem::npu::emulator
