// The emulated NPU's controller: takes command buffers in order and executes them on a thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/buffer_table.h"
#include "services/npu_worker/emulator/ert_packet.h"
#include "services/npu_worker/emulator/fault_injection.h"

namespace tandem::npu::emulator {

// Runs one decoded command.  Any error makes the command's state kError.
using CommandHandler = std::function<absl::Status(const Invocation&, const AddressSpace::View&)>;

// Thread-safe.
class Executor {
 public:
  // `space` and `buffers`: Borrowed; must outlive this.
  Executor(const AddressSpace& space, const BufferTable& buffers, CommandHandler handler,
           Faults faults);
  // Finishes the command in hand and drops the others.
  ~Executor();

  // Queues a command buffer.  False when there is no such buffer.
  bool Submit(Handle command);
  // Waits until a command has finished that no earlier call has reported.  False on time-out.
  bool WaitForCompletion(absl::Duration timeout);
  // Orders the caller after every command whose state it has seen: XRT polls states, and syncs
  // buffers before it reads them.
  void Synchronize();

 private:
  void Loop();
  void Execute(Buffer& command);
  void Finish(uint32_t* header, CommandState state);
  void SleepIfAsked();

  const AddressSpace& space_;
  const BufferTable& buffers_;
  const CommandHandler handler_;
  const Faults faults_;
  // Of the executor's thread alone.
  int64_t num_started_ = 0;
  int num_reported_ = 0;  // errors written to standard error

  Mutex mutex_;
  CondVar changed_;  // queue_, num_unreported_ or stopping_
  std::deque<std::shared_ptr<Buffer>> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_unreported_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::npu::emulator
