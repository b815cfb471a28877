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
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

bool Executor::Submit(Handle command) {
  std::shared_ptr<Buffer> buffer = buffers_.Find(command);
  if (buffer == nullptr) return false;
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(buffer));
  return true;
}

bool Executor::WaitForCompletion(absl::Duration timeout) {
  const auto finished = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return num_unreported_ > 0; };
  absl::MutexLock lock(&mutex_);
  if (!mutex_.AwaitWithTimeout(absl::Condition(&finished), timeout)) return false;
  --num_unreported_;
  return true;
}

void Executor::Loop() {
  const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !queue_.empty();
  };
  while (true) {
    std::shared_ptr<Buffer> command;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&ready));
      if (stopping_) return;
      command = std::move(queue_.front());
      queue_.pop_front();
    }
    Execute(*command);
    absl::MutexLock lock(&mutex_);
    ++num_unreported_;
  }
}

void Executor::SleepIfAsked() {
  const int64_t command = num_started_++ - faults_.hang_after;
  if (faults_.hang_ms <= 0 || command < 0) return;
  if (faults_.hang_count > 0 && command >= faults_.hang_count) return;
  const auto stopping = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_; };
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&stopping), absl::Milliseconds(faults_.hang_ms));
}

void Executor::Execute(Buffer& command) {
  auto* words = reinterpret_cast<uint32_t*>(command.host);
  const size_t num_words = command.bytes / sizeof(uint32_t);
  if (num_words == 0) return;
  // XRT configures its scheduler with a packet of its own, which asks for nothing here.
  if (OpcodeOf(words[0]) == PacketOpcode::kConfigure) {
    SetState(words, CommandState::kCompleted);
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
  SetState(words, status.ok() ? CommandState::kCompleted : CommandState::kError);
}

}  // namespace tandem::npu::emulator
