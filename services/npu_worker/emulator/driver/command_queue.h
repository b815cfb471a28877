// The commands of one hardware context, executed in order on a thread of their own.
//
// As the amdxdna driver schedules them: at most kCommandsInFlight are under way, and a submission
// beyond them waits.  A command that does not end within the recovery time is given up (kTimeout;
// DEADLINE_EXCEEDED of the handler says that one never ends), those behind it are aborted (kAbort),
// and the context goes on with the next one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/driver/client_buffers.h"
#include "services/npu_worker/emulator/driver/fault_plan.h"
#include "services/npu_worker/emulator/ert_packet.h"
#include "services/npu_worker/emulator/executor.h"

namespace tandem::npu::emulator {

struct Submission {
  std::shared_ptr<ClientBuffer> packet;                  // whose state the process waits for
  std::vector<std::shared_ptr<ClientBuffer>> commands;   // of a chain; empty: the packet itself
  std::vector<std::shared_ptr<ClientBuffer>> arguments;  // kept until the command has ended
};

// Thread-safe.
class CommandQueue {
 public:
  // `space`, `faults`: Borrowed; must outlive this.
  CommandQueue(const AddressSpace& space, CommandHandler handler, FaultPlan& faults,
               absl::Duration recovery_after);
  // Aborts what has not ended.
  ~CommandQueue();

  // Executes the commands that are submitted from now on.
  void SetHandler(CommandHandler handler) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for a place in flight.  `*sequence`: the command's number, 0 for the first.
  void Submit(Submission submission, uint64_t* sequence) ABSL_LOCKS_EXCLUDED(mutex_);
  // ETIME: it has not ended by `deadline`.
  Errno Wait(uint64_t sequence, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Counts {
    uint64_t submitted = 0;
    uint64_t completed = 0;
    uint64_t errors = 0;
  };
  Counts counts() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  CommandState Run(const Submission& submission) ABSL_LOCKS_EXCLUDED(mutex_);
  // `first`: of the chain, or the command itself.  kNew: the queue ends.
  CommandState RunOne(ClientBuffer& command, ClientBuffer& first, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Execute(ClientBuffer& command, ClientBuffer& first) ABSL_LOCKS_EXCLUDED(mutex_);
  // False: the queue ends.
  bool SleepUntil(absl::Time time) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndFirst(CommandState state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AddressSpace& space_;
  FaultPlan& faults_;
  const absl::Duration recovery_after_;

  mutable Mutex mutex_;
  CondVar changed_;
  CommandHandler handler_ ABSL_GUARDED_BY(mutex_);
  std::deque<Submission> in_flight_ ABSL_GUARDED_BY(mutex_);  // the first is the one that runs
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::npu::emulator
