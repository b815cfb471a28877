#include "services/loader/packing/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::loader {
namespace {

class Threads {
 public:
  Threads(size_t count, int num_threads, const std::function<absl::Status(size_t, int)>& item)
      : count_(count), item_(item), running_(num_threads) {
    for (int t = 0; t < num_threads; ++t) threads_.emplace_back([this, t] { Work(t); });
  }

  absl::Status Watch(const std::function<absl::Status()>& watch) {
    while (!AllDone(absl::Milliseconds(100))) {
      if (const absl::Status status = watch(); !status.ok()) Stop(status);
    }
    for (std::thread& thread : threads_) thread.join();
    absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  void Work(int thread) {
    for (size_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
      if (const absl::Status status = item_(i, thread); !status.ok()) Stop(status);
    }
    absl::MutexLock lock(&mutex_);
    --running_;
  }

  void Stop(const absl::Status& status) {
    next_.store(count_);
    absl::MutexLock lock(&mutex_);
    status_.Update(status);
  }

  bool AllDone(absl::Duration timeout) {
    const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_ == 0; };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&done), timeout);
  }

  const size_t count_;
  const std::function<absl::Status(size_t, int)>& item_;
  std::atomic<size_t> next_{0};
  absl::Mutex mutex_;
  int running_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace

int ThreadCount(int num_threads) {
  if (num_threads > 0) return num_threads;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

absl::Status ParallelFor(int num_threads, size_t count,
                         const std::function<absl::Status(size_t item, int thread)>& item,
                         const std::function<absl::Status()>& watch) {
  const size_t threads = std::min(static_cast<size_t>(num_threads), count);
  return Threads(count, static_cast<int>(threads), item).Watch(watch);
}

}  // namespace tandem::loader
