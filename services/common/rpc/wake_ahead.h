// Waiting for a message without falling asleep just before it comes.
#pragma once

#include <grpcpp/completion_queue.h>
#include <poll.h>

#include <chrono>

namespace tandem {

// A thread that blocks lets its processor halt, and waking a halted processor costs several times
// what a segment call's two messages do.  Where the last waits of a stream were short, the next
// is expected to be short too, and the thread polls for a bounded time before it blocks, giving way
// to whoever else wants its processor.  Long waits block at once: a device that is emulated on the
// host needs every processor, and a late wake-up is a small part of them.
//
// It takes effect where PollForLatency has been called and gRPC polls by `poll`, which it lets its
// users replace; elsewhere Next is queue.AsyncNext.  Source of the idea: adaptive halt polling, as
// hypervisors do it.
// Single-thread.
class WakeAhead {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::nanoseconds kLongestPoll = std::chrono::microseconds(200);

  // A wait begins; Next then waits with foresight until WaitEnds.
  void WaitBegins(Clock::time_point now);
  // What was waited for has come.  Without a wait under way: no effect.
  void WaitEnds(Clock::time_point now);
  // Whether the next wait is expected to end within kLongestPoll.
  bool expects_soon() const { return expected_ <= kLongestPoll; }

  // As queue.AsyncNext.
  grpc::CompletionQueue::NextStatus Next(grpc::CompletionQueue& queue, void** tag, bool* ok,
                                         std::chrono::system_clock::time_point deadline) const;

  // As poll(2), for gRPC to call: with the foresight of the Next this thread is in.
  static int Poll(struct pollfd* descriptors, nfds_t count, int timeout_ms);

 private:
  std::chrono::nanoseconds expected_ = 4 * kLongestPoll;
  Clock::time_point began_;
  bool waiting_ = false;
};

}  // namespace tandem
