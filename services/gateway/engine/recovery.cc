#include "services/gateway/engine/recovery.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/gateway/executor/placement_moved.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kTurnInterval = absl::Milliseconds(20);

}  // namespace

Recovery::Recovery(Executor& executor, RecoveryOptions options)
    : executor_(executor), options_(std::move(options)), pause_(options_.min_pause) {}

void Recovery::SetReason(absl::Status why) {
  why_ = std::move(why);
  MutexLock lock(mutex_);
  reason_ = std::string(why_.message());
}

void Recovery::MarkLost(absl::Status why) {
  TANDEM_CHECK(!why.ok());
  SetReason(std::move(why));
  since_ = absl::Now();
}

// The executor's call blocks for as long as the workers take; meanwhile clients come and go.
absl::Status Recovery::Attempt(const Turn& turn) {
  TANDEM_CHECK(down());
  if (options_.on_ready_change) options_.on_ready_change(false);
  LogWarning("recovering", {{"reason", why_.ToString()}});
  std::atomic<bool> done = false;
  absl::Status status;
  std::thread recover([&] {
    status = executor_.Recover([](std::string_view, double) {});
    done = true;
  });
  while (!done) {
    turn();
    absl::SleepFor(kTurnInterval);
  }
  recover.join();
  return status;
}

void Recovery::Succeeded() {
  const bool lost = !IsPlacementMoved(why_);
  SetReason(absl::OkStatus());
  pause_ = options_.min_pause;
  if (lost) {
    MutexLock lock(mutex_);
    ++count_;
  }
  if (options_.on_ready_change) options_.on_ready_change(true);
}

void Recovery::Failed(absl::Status why) {
  TANDEM_CHECK(!why.ok());
  SetReason(std::move(why));
}

void Recovery::Pause(const Turn& turn) {
  const absl::Time until = absl::Now() + pause_;
  pause_ = std::min(pause_ * 2, options_.max_pause);
  while (absl::Now() < until && turn()) {
    absl::SleepFor(std::clamp(until - absl::Now(), absl::ZeroDuration(), kTurnInterval));
  }
}

absl::Status Recovery::CheckWait(absl::Time submitted, absl::Time now) const {
  if (!down() || now - std::max(submitted, since_) < options_.down_wait) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrFormat("a worker is lost and has not come back within %s: %s",
                      absl::FormatDuration(options_.down_wait), std::string(why_.message())));
}

std::string Recovery::reason() const {
  MutexLock lock(mutex_);
  return reason_;
}

uint64_t Recovery::count() const {
  MutexLock lock(mutex_);
  return count_;
}

}  // namespace tandem::gateway
