// A thread for short work that may touch files, off gRPC's threads.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem::loader {

// Runs tasks in order, at most `max_waiting` queued.  Thread-safe.
class TaskThread {
 public:
  explicit TaskThread(size_t max_waiting) : max_waiting_(max_waiting), thread_([this] { Run(); }) {}
  // Runs the queued tasks, then stops.
  ~TaskThread() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }

  // False: the queue is full, the task was not taken.
  bool Post(std::function<void()> task) {
    absl::MutexLock lock(&mutex_);
    if (tasks_.size() >= max_waiting_ || stopping_) return false;
    tasks_.push_back(std::move(task));
    return true;
  }

 private:
  void Run() {
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !tasks_.empty();
    };
    while (true) {
      std::function<void()> task;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(&ready));
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  const size_t max_waiting_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::loader
