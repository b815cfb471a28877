#include "services/npu_worker/emulator/executor.h"

#include <cstdio>
#include <utility>

namespace tandem::npu::emulator {
namespace {

constexpr int kMaxReports = 20;

}  // namespace

Executor::Executor(const AddressSpace& space, const BufferTable& buffers, CommandHandler handler,
                   Faults faults)
    : space_(space),
      buffers_(buffers),
      handler_(std::move(handler)),
      faults_(faults),
      thread_([this] { Loop(); }) {}

Executor::~Executor() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

bool Executor::Submit(Handle command) {
  std::shared_ptr<Buffer> buffer = buffers_.Find(command);
  if (buffer == nullptr) return false;
  const MutexLock lock(mutex_);
  queue_.push_back(std::move(buffer));
  changed_.SignalAll();
  return true;
}

bool Executor::WaitForCompletion(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const MutexLock lock(mutex_);
  while (num_unreported_ == 0) {
    if (!changed_.WaitUntil(mutex_, deadline) && num_unreported_ == 0) return false;
  }
  --num_unreported_;
  return true;
}

void Executor::Synchronize() { const MutexLock lock(mutex_); }

void Executor::Finish(uint32_t* header, CommandState state) {
  Synchronize();  // pairs with the Synchronize of the thread that reads the state
  SetState(header, state);
}

void Executor::Loop() {
  while (true) {
    std::shared_ptr<Buffer> command;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && queue_.empty()) changed_.Wait(mutex_);
      if (stopping_) return;
      command = std::move(queue_.front());
      queue_.pop_front();
    }
    Execute(*command);
    const MutexLock lock(mutex_);
    ++num_unreported_;
    changed_.SignalAll();
  }
}

void Executor::SleepIfAsked() {
  const int64_t command = num_started_++ - faults_.hang_after;
  if (faults_.hang_ms <= 0 || command < 0) return;
  if (faults_.hang_count > 0 && command >= faults_.hang_count) return;
  const absl::Time end = absl::Now() + absl::Milliseconds(faults_.hang_ms);
  const MutexLock lock(mutex_);
  while (!stopping_ && changed_.WaitUntil(mutex_, end)) {
  }
}

void Executor::Execute(Buffer& command) {
  auto* words = reinterpret_cast<uint32_t*>(command.host);
  const size_t num_words = command.bytes / sizeof(uint32_t);
  if (num_words == 0) return;
  // XRT configures its scheduler with a packet of its own, which asks for nothing here.
  if (OpcodeOf(words[0]) == PacketOpcode::kConfigure) {
    Finish(words, CommandState::kCompleted);
    return;
  }
  SleepIfAsked();
  absl::Status status;
  if (!faults_.silent) {
    const auto invocation = DecodeStart({words, num_words});
    status = invocation.status();
    if (status.ok()) {
      const AddressSpace::View view(space_);
      status = handler_(*invocation, view);
    }
  }
  if (!status.ok() && num_reported_ < kMaxReports) {
    std::fprintf(stderr, "npu emulator: %s%s\n", status.ToString().c_str(),
                 ++num_reported_ == kMaxReports ? " (later errors are not shown)" : "");
  }
  Finish(words, status.ok() ? CommandState::kCompleted : CommandState::kError);
}

}  // namespace tandem::npu::emulator
