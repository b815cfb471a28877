#include "services/gateway/pull/pull_jobs.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kTellInterval = absl::Milliseconds(200);

}  // namespace

PullJobs::~PullJobs() {
  ending_ = true;
  std::list<Job> jobs;
  {
    const MutexLock lock(mutex_);
    // Their threads still use them: moved as nodes, they stay where they are.
    jobs.splice(jobs.end(), jobs_);
  }
  for (Job& job : jobs) job.thread.join();
}

// Jobs whose threads are about to end, for the caller to join with no lock held.
std::list<PullJobs::Job> PullJobs::TakeOver() {
  std::list<Job> over;
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto next = std::next(job);
    if (job->over) over.splice(over.end(), jobs_, job);
    job = next;
  }
  return over;
}

absl::Status PullJobs::Start(const pull::ModelName& name, std::shared_ptr<PullListener> listener) {
  std::list<Job> over;
  absl::Status status;
  {
    const MutexLock lock(mutex_);
    over = TakeOver();
    const auto same = std::find_if(jobs_.begin(), jobs_.end(),
                                   [&name](const Job& job) { return job.name.text == name.text; });
    if (same != jobs_.end()) {
      same->listeners.push_back(std::move(listener));
    } else if (jobs_.size() >= kMaxJobs) {
      status = absl::ResourceExhaustedError(
          absl::StrFormat("%d models are being pulled already", jobs_.size()));
    } else {
      Job& job = jobs_.emplace_back();
      job.name = name;
      job.listeners.push_back(std::move(listener));
      job.thread = std::thread([this, &job] { Run(job); });
    }
  }
  for (Job& job : over) job.thread.join();
  return status;
}

bool PullJobs::Tell(Job& job, const pull::PullProgress& progress) {
  std::vector<std::shared_ptr<PullListener>> listeners;
  {
    const MutexLock lock(mutex_);
    listeners = job.listeners;
  }
  std::vector<const PullListener*> gone;
  for (const auto& listener : listeners) {
    if (!listener->OnProgress(progress)) gone.push_back(listener.get());
  }
  const MutexLock lock(mutex_);
  std::erase_if(job.listeners, [&gone](const auto& listener) {
    return std::find(gone.begin(), gone.end(), listener.get()) != gone.end();
  });
  return !job.listeners.empty();
}

absl::Status PullJobs::PullOnce(Job& job) {
  absl::Time tell_at = absl::InfinitePast();
  std::optional<pull::PullPhase> phase;
  return pull_(job.name, [&](const pull::PullProgress& progress) {
    if (ending_) return false;
    const absl::Time now = absl::Now();
    if (phase == progress.phase && now < tell_at) return true;
    phase = progress.phase;
    tell_at = now + kTellInterval;
    return Tell(job, progress);
  });
}

void PullJobs::Run(Job& job) {
  LogInfo("pulling", {{"model", job.name.text}});
  absl::Status status;
  std::vector<std::shared_ptr<PullListener>> listeners;
  while (!job.over) {
    status = PullOnce(job);
    LogInfo("pull ended", {{"model", job.name.text}, {"status", status.ToString()}});
    const MutexLock lock(mutex_);
    // Somebody may have come between the moment when the last listener had left and now.
    if (absl::IsCancelled(status) && !job.listeners.empty() && !ending_) continue;
    listeners = std::exchange(job.listeners, {});
    job.over = true;
  }
  for (const auto& listener : listeners) listener->OnEnd(status);
}

}  // namespace tandem::gateway
