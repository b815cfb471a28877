#include "services/loader/service/load_jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"

namespace tandem::loader {

LoadJobs::LoadJobs(LoadFunction load) : load_(std::move(load)), thread_([this] { Run(); }) {}

LoadJobs::~LoadJobs() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  for (const Job& job : jobs_) {
    for (const auto& watcher : job.watchers) {
      watcher->OnLoaded(absl::UnavailableError("the loader is shutting down"));
    }
  }
}

absl::Status LoadJobs::Watch(const std::string& name, std::shared_ptr<LoadWatcher> watcher) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError("the loader is shutting down");
  auto job = std::find_if(jobs_.begin(), jobs_.end(),
                          [&](const Job& candidate) { return candidate.name == name; });
  if (job == jobs_.end()) {
    if (jobs_.size() >= kMaxJobs) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%d loads are waiting; try again later", jobs_.size()));
    }
    jobs_.push_back({name, {}});
    job = jobs_.end() - 1;
  }
  if (job->watchers.size() >= kMaxWatchers) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d requests wait for this load; try again later", job->watchers.size()));
  }
  job->watchers.push_back(std::move(watcher));
  return absl::OkStatus();
}

void LoadJobs::Unwatch(const std::string& name, const LoadWatcher* watcher) {
  absl::MutexLock lock(&mutex_);
  for (Job& job : jobs_) {
    if (job.name != name) continue;
    std::erase_if(job.watchers, [&](const auto& other) { return other.get() == watcher; });
  }
}

bool LoadJobs::Report(const PackProgress& progress) {
  std::vector<std::shared_ptr<LoadWatcher>> watchers;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return false;
    watchers = jobs_.front().watchers;
  }
  for (const auto& watcher : watchers) watcher->OnProgress(progress);
  return !watchers.empty();
}

void LoadJobs::Run() {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !jobs_.empty();
  };
  while (true) {
    std::string name;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&ready));
      if (stopping_) return;
      name = jobs_.front().name;
    }
    const auto model =
        load_(name, [this](const PackProgress& progress) { return Report(progress); });
    if (!model.ok()) {
      LogWarning("load failed",
                 {{"model", name.substr(0, 256)}, {"reason", model.status().ToString()}});
    }
    Job done;
    {
      absl::MutexLock lock(&mutex_);
      // Load again for a watcher that joined after the last other one had cancelled the load.
      const bool again =
          absl::IsCancelled(model.status()) && !stopping_ && !jobs_.front().watchers.empty();
      if (stopping_) return;
      if (again) continue;
      done = std::move(jobs_.front());
      jobs_.pop_front();
    }
    for (const auto& watcher : done.watchers) watcher->OnLoaded(model);
  }
}

}  // namespace tandem::loader
