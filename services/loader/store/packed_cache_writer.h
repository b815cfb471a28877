// Writes packed models to the cache while they are already served.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/common/base/unique_fd.h"
#include "services/loader/packing/packed_cache.h"

namespace tandem::loader {

// One thread, one model at a time.  Thread-safe.
class PackedCacheWriter {
 public:
  // `cache`: borrowed; must outlive this.
  explicit PackedCacheWriter(PackedCache& cache) : cache_(cache), thread_([this] { Run(); }) {}
  // Cancels the write in progress.
  ~PackedCacheWriter();

  struct Job {
    PackedName name;
    std::vector<std::pair<UniqueFd, uint64_t>> regions;  // descriptors of its own, and sizes
  };
  // Begins to write; cancels another write in progress.
  void Post(Job job);
  // Cancels the write in progress and returns when its memory is freed.
  void Cancel();
  // Returns when no write is in progress.
  void Wait();

 private:
  void Run();
  absl::Status Write(const Job& job);
  bool KeepGoing();

  PackedCache& cache_;  // Borrowed.
  absl::Mutex mutex_;
  std::optional<Job> next_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::loader
