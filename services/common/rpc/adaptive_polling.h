// Adaptive polling: a thread that expects its message soon polls for it instead of blocking.
#pragma once

#include <grpcpp/completion_queue.h>
#include <poll.h>

#include <chrono>

namespace tandem {

// A thread that blocks lets its processor halt.  Waking a halted processor costs several times as
// much as the two messages of a segment call.  If the last waits of a stream were short, the next
// wait probably is too: the thread polls for at most kLongestPoll before it blocks, and yields its
// processor at each turn.  If they were long, the thread blocks at once: devices emulated on the
// host need every processor, and the wake-up is a small part of a long wait.
//
// REQUIRES PollForLatency was called and gRPC uses its `poll` strategy, whose poll function can be
// replaced.  Without them Next equals queue.AsyncNext.
// Source: adaptive halt polling in hypervisors.
// Single-thread.
class AdaptivePolling {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::nanoseconds kLongestPoll = std::chrono::microseconds(200);

  // A wait begins.  Next may poll until WaitEnds.
  void WaitBegins(Clock::time_point now);
  // The message has come.  No effect unless a wait has begun.
  void WaitEnds(Clock::time_point now);
  // Whether the next wait is expected to end within kLongestPoll.
  bool expects_soon() const { return expected_ <= kLongestPoll; }

  // As queue.AsyncNext.
  grpc::CompletionQueue::NextStatus Next(grpc::CompletionQueue& queue, void** tag, bool* ok,
                                         std::chrono::system_clock::time_point deadline) const;

  // As poll(2), for gRPC to call from this thread's Next: polls first if that wait may.
  static int Poll(struct pollfd* descriptors, nfds_t count, int timeout_ms);

 private:
  std::chrono::nanoseconds expected_ = 4 * kLongestPoll;
  Clock::time_point began_;
  bool waiting_ = false;
};

}  // namespace tandem
