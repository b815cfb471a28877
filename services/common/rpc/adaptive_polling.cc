#include "services/common/rpc/adaptive_polling.h"

#include <sched.h>

#include <algorithm>

namespace tandem {
namespace {

using std::chrono::nanoseconds;

thread_local const AdaptivePolling* waiting_here = nullptr;

}  // namespace

void AdaptivePolling::WaitBegins(Clock::time_point now) {
  began_ = now;
  waiting_ = true;
}

void AdaptivePolling::WaitEnds(Clock::time_point now) {
  if (!waiting_) return;
  waiting_ = false;
  const nanoseconds waited = std::min<nanoseconds>(now - began_, 4 * kLongestPoll);
  expected_ += (waited - expected_) / 4;
}

grpc::CompletionQueue::NextStatus AdaptivePolling::Next(
    grpc::CompletionQueue& queue, void** tag, bool* ok,
    std::chrono::system_clock::time_point deadline) const {
  waiting_here = waiting_ && expects_soon() ? this : nullptr;
  const auto status = queue.AsyncNext(tag, ok, deadline);
  waiting_here = nullptr;
  return status;
}

int AdaptivePolling::Poll(struct pollfd* descriptors, nfds_t count, int timeout_ms) {
  if (waiting_here != nullptr && timeout_ms != 0) {
    const Clock::time_point until = waiting_here->began_ + kLongestPoll;
    while (Clock::now() < until) {
      const int ready = ::poll(descriptors, count, 0);
      if (ready != 0) return ready;
      ::sched_yield();
    }
  }
  return ::poll(descriptors, count, timeout_ms);
}

}  // namespace tandem
