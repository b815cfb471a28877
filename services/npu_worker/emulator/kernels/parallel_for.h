// Runs the tasks of one command on the executor's thread and one helper thread.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"

namespace tandem::npu::emulator {

// Single-thread: Run is called by one thread at a time.
class ParallelFor {
 public:
  ParallelFor();
  ~ParallelFor();

  // Calls task(i) for every i < num_tasks, on two threads when there is more than one task.
  void Run(int num_tasks, const std::function<void(int)>& task);

 private:
  void HelperLoop();
  void Drain();

  const std::function<void(int)>* task_ = nullptr;  // Borrowed during Run
  int num_tasks_ = 0;
  std::atomic<int> next_task_{0};

  Mutex mutex_;
  CondVar changed_;
  bool offered_ ABSL_GUARDED_BY(mutex_) = false;  // tasks that the helper may join in
  bool helping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread helper_;
};

}  // namespace tandem::npu::emulator
