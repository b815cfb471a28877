// Pulls that clients asked for: one thread each, shared by all who ask for the same model.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/base/mutex.h"
#include "services/common/pull/pull.h"

namespace tandem::gateway {

// Receives a pull's progress, on the pull's thread.
class PullListener {
 public:
  virtual ~PullListener() = default;
  // Called a few times a second.  False: the listener leaves.
  virtual bool OnProgress(const pull::PullProgress& progress) = 0;
  // Called at the end, unless the listener has left.
  virtual void OnEnd(const absl::Status& status) = 0;
};

// Thread-safe.
class PullJobs {
 public:
  static constexpr size_t kMaxJobs = 2;
  // As pull::Pull with all but its first and last argument.
  using PullModel = std::function<absl::Status(
      const pull::ModelName&, const std::function<bool(const pull::PullProgress&)>&)>;

  explicit PullJobs(PullModel pull) : pull_(std::move(pull)) {}
  // Stops the pulls; the next pull continues from the parts on disk.
  ~PullJobs();

  // Starts a pull of `name`, or joins the one under way.  A pull without listeners is stopped.
  // RESOURCE_EXHAUSTED: kMaxJobs are under way.
  absl::Status Start(const pull::ModelName& name, std::shared_ptr<PullListener> listener);

 private:
  struct Job {
    pull::ModelName name;
    std::vector<std::shared_ptr<PullListener>> listeners;  // shared with their requests
    bool over = false;
    std::thread thread;
  };
  void Run(Job& job);
  absl::Status PullOnce(Job& job);
  bool Tell(Job& job, const pull::PullProgress& progress);
  std::list<Job> TakeOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PullModel pull_;
  std::atomic<bool> ending_ = false;
  Mutex mutex_;
  std::list<Job> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway
