// Engine: what happens between the loss of a worker and its return.
#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/executor/model_changed.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kIdlePoll = absl::Milliseconds(20);

}  // namespace

// A worker that dies while nothing runs is found before a request has to find it.
void Engine::CheckWorkers() {
  absl::Status status = executor_->CheckWorkers();
  if (status.ok()) return;
  down_ = std::move(status);
  down_since_ = absl::Now();
}

void Engine::RecoverOnce() {
  {
    MutexLock lock(mutex_);
    published_.down_reason = std::string(down_.message());
  }
  if (options_.on_ready_change) options_.on_ready_change(false);
  const absl::Time began = absl::Now();
  LogWarning("recovering", {{"reason", down_.ToString()}});
  const absl::Status status = RunRecover();
  if (status.ok()) {
    AfterRecovery();
  } else {
    AfterFailedRecovery(status, began);
  }
}

// The executor's call blocks for as long as the workers take; meanwhile clients come and go.  It
// runs on a thread of its own while this one leaves the executor alone.
absl::Status Engine::RunRecover() {
  std::atomic<bool> done = false;
  absl::Status status;
  std::thread recover([&] {
    status = executor_->Recover([](std::string_view, double) {});
    done = true;
  });
  Idle(absl::InfiniteFuture(), [&] { return done.load(); });
  recover.join();
  return status;
}

void Engine::AfterRecovery() {
  const auto misfits = scheduler_->RecomputeAll(executor_->limits());
  if (!misfits.ok()) return AfterFailedRecovery(misfits.status(), absl::Now());
  down_ = absl::OkStatus();
  recovery_pause_ = options_.min_recovery_pause;
  ++snapshot_.recoveries;
  PublishPlan();
  for (const uint64_t id : *misfits) {
    End(id, absl::ResourceExhaustedError(absl::StrFormat(
                "after the loss of a worker the cluster holds %d tokens a request, and this one "
                "has more",
                rules_.max_sequence_len)));
  }
  LogInfo("recovered", {{"placement", snapshot_.placement}, {"requests", runs_.size()}});
  if (options_.on_ready_change) options_.on_ready_change(true);
}

void Engine::AfterFailedRecovery(const absl::Status& status, absl::Time began) {
  if (IsModelChanged(status)) return LoseModel(status);
  LogError("recovery failed", {{"status", status.ToString()},
                               {"next_attempt_in", absl::FormatDuration(recovery_pause_)}});
  down_ = status;
  EndAll(absl::UnavailableError(absl::StrFormat("a worker is lost and has not come back: %s",
                                                std::string(status.message()))),
         began);
  {
    MutexLock lock(mutex_);
    published_.down_reason = std::string(status.message());
  }
  Idle(absl::Now() + recovery_pause_, [] { return false; });
  recovery_pause_ = std::min(recovery_pause_ * 2, options_.max_recovery_pause);
}

void Engine::LoseModel(const absl::Status& status) {
  LogError("model lost, running requests end",
           {{"status", status.ToString()}, {"requests", runs_.size()}});
  down_ = status;
  MutexLock lock(mutex_);
  published_.down_reason = std::string(status.message());
  stopping_ = true;
  end_reason_ = absl::UnavailableError(
      "the weights that this request ran on are lost and the model's file has changed: the gateway "
      "loads the file as it is now; send the request again");
}

void Engine::Idle(absl::Time until, const std::function<bool()>& done) {
  while (!done() && absl::Now() < until && !(stopping() && until != absl::InfiniteFuture())) {
    turns_.fetch_add(1, std::memory_order_relaxed);
    TakeMail();
    Sweep(absl::Now());
    if (stopping()) EndAll(end_reason(), absl::InfiniteFuture());
    Publish();
    absl::SleepFor(std::min(kIdlePoll, std::max(until - absl::Now(), absl::ZeroDuration())));
  }
}

}  // namespace tandem::gateway
