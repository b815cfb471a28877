#include "services/npu_worker/emulator/driver/command_queue.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tandem::npu::emulator {
namespace {

uint32_t* Words(ClientBuffer& buffer) { return reinterpret_cast<uint32_t*>(buffer.host); }

}  // namespace

CommandQueue::CommandQueue(const AddressSpace& space, CommandHandler handler, FaultPlan& faults,
                           absl::Duration recovery_after)
    : space_(space),
      faults_(faults),
      recovery_after_(recovery_after),
      handler_(std::move(handler)),
      thread_([this] { Loop(); }) {}

CommandQueue::~CommandQueue() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
  const MutexLock lock(mutex_);
  while (!in_flight_.empty()) EndFirst(CommandState::kAbort);
}

void CommandQueue::SetHandler(CommandHandler handler) {
  const MutexLock lock(mutex_);
  handler_ = std::move(handler);
}

void CommandQueue::Submit(Submission submission, uint64_t* sequence) {
  const MutexLock lock(mutex_);
  while (in_flight_.size() >= kCommandsInFlight) changed_.Wait(mutex_);
  SetState(Words(*submission.packet), CommandState::kNew);
  in_flight_.push_back(std::move(submission));
  *sequence = counts_.submitted++;
  changed_.SignalAll();
}

Errno CommandQueue::Wait(uint64_t sequence, absl::Time deadline) {
  const MutexLock lock(mutex_);
  // Not submitted yet is waited for as well, as the process's library asks.
  while (counts_.completed <= sequence) {
    if (!changed_.WaitUntil(mutex_, deadline) && counts_.completed <= sequence) return ETIME;
  }
  return 0;
}

CommandQueue::Counts CommandQueue::counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

void CommandQueue::EndFirst(CommandState state) {
  SetState(Words(*in_flight_.front().packet), state);
  in_flight_.pop_front();
  ++counts_.completed;
  if (state != CommandState::kCompleted) ++counts_.errors;
  changed_.SignalAll();
}

void CommandQueue::Loop() {
  while (true) {
    Submission submission;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && in_flight_.empty()) changed_.Wait(mutex_);
      if (stopping_) return;
      submission = in_flight_.front();
    }
    const CommandState state = Run(submission);
    const MutexLock lock(mutex_);
    if (state == CommandState::kNew) return;
    EndFirst(state);
    if (state != CommandState::kTimeout) continue;
    // Recovery: the firmware's context is made anew, and what it was given is gone.
    (void)Refuse(ETIME, "a command did not end: the context was reset");
    while (!in_flight_.empty()) EndFirst(CommandState::kAbort);
  }
}

CommandState CommandQueue::Run(const Submission& submission) {
  const absl::Time deadline = absl::Now() + recovery_after_;
  if (submission.commands.empty()) return RunOne(*submission.packet, *submission.packet, deadline);
  for (size_t i = 0; i < submission.commands.size(); ++i) {
    const CommandState state = RunOne(*submission.commands[i], *submission.commands[0], deadline);
    if (state == CommandState::kNew) return state;
    SetChainIndex(Words(*submission.packet), static_cast<uint32_t>(i),
                  state != CommandState::kCompleted);
    if (state != CommandState::kCompleted) return state;
  }
  return CommandState::kCompleted;
}

bool CommandQueue::SleepUntil(absl::Time time) {
  const MutexLock lock(mutex_);
  while (!stopping_ && absl::Now() < time) changed_.WaitUntil(mutex_, time);
  return !stopping_;
}

CommandState CommandQueue::RunOne(ClientBuffer& command, ClientBuffer& first, absl::Time deadline) {
  const FaultPlan::CommandFault fault = faults_.NextCommand();
  // What the host takes to compute is no time of the device: only injected time counts.
  if (fault.hang > absl::ZeroDuration()) {
    const absl::Time end = absl::Now() + fault.hang;
    if (!SleepUntil(std::min(end, deadline))) return CommandState::kNew;
    if (end >= deadline) return CommandState::kTimeout;
  }
  if (fault.fails) {
    (void)Refuse(EIO, "a command that is to end with an error");
    return CommandState::kError;
  }
  absl::Status status;
  if (!faults_.faults().silent) status = Execute(command, first);
  if (absl::IsDeadlineExceeded(status)) (void)Refuse(ETIME, status.ToString());
  if (fault.lose_interrupt || absl::IsDeadlineExceeded(status)) {
    if (!SleepUntil(deadline)) return CommandState::kNew;
    return CommandState::kTimeout;
  }
  if (status.ok()) return CommandState::kCompleted;
  (void)Refuse(EIO, status.ToString());
  return CommandState::kError;
}

absl::Status CommandQueue::Execute(ClientBuffer& command, ClientBuffer& first) {
  const auto decode = [](ClientBuffer& buffer) {
    return DecodeStart({Words(buffer), buffer.bytes / sizeof(uint32_t)});
  };
  auto invocation = decode(command);
  if (!invocation.ok()) return invocation.status();
  if (faults_.faults().chain_of_one_kernel) {
    const auto of_first = decode(first);
    if (!of_first.ok()) return of_first.status();
    invocation->cu = of_first->cu;
  }
  CommandHandler handler;
  {
    const MutexLock lock(mutex_);
    handler = handler_;
  }
  const AddressSpace::View view(space_);
  return handler(*invocation, view);
}

}  // namespace tandem::npu::emulator
