// Loads in progress, and the requests that wait for them.
//
// One thread loads models, one after the other.  A request for a model that is loading or queued
// joins that load.  A request that leaves does not stop the load for the others; the load is
// cancelled once no request waits for it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/loader/store/model_store.h"

namespace tandem::loader {

// A request that waits for a load.  Called from the loading thread, in order; must not block.
class LoadWatcher {
 public:
  virtual ~LoadWatcher() = default;
  virtual void OnProgress(const PackProgress& progress) = 0;
  // The last call.
  virtual void OnLoaded(const absl::StatusOr<std::shared_ptr<const ResidentModel>>& model) = 0;
};

// Thread-safe.
class LoadJobs {
 public:
  static constexpr size_t kMaxJobs = 16;       // the one in progress included
  static constexpr size_t kMaxWatchers = 256;  // of one job

  // As ModelStore::Load.  Called from the loading thread.
  using LoadFunction = std::function<absl::StatusOr<std::shared_ptr<const ResidentModel>>(
      const std::string& name, const std::function<bool(const PackProgress&)>& progress)>;

  explicit LoadJobs(LoadFunction load);
  // Stops the load in progress; every watcher gets UNAVAILABLE.
  ~LoadJobs();

  // Joins or queues the load of `name`.  RESOURCE_EXHAUSTED: the queue is full.
  absl::Status Watch(const std::string& name, std::shared_ptr<LoadWatcher> watcher);
  // No calls to `watcher` begin after this returns, but one may be under way.
  void Unwatch(const std::string& name, const LoadWatcher* watcher);

 private:
  struct Job {
    std::string name;
    std::vector<std::shared_ptr<LoadWatcher>> watchers;
  };

  void Run();
  // Reports progress of the first job; false: cancel the load.
  bool Report(const PackProgress& progress);

  const LoadFunction load_;
  absl::Mutex mutex_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);  // the first one is being loaded
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::loader
