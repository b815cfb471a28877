#include "services/npu_worker/emulator/kernels/parallel.h"

namespace tandem::npu::emulator {

WorkSharer::WorkSharer() : helper_([this] { HelperLoop(); }) {}

WorkSharer::~WorkSharer() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  helper_.join();
}

void WorkSharer::Drain() {
  for (int i = next_task_.fetch_add(1); i < num_tasks_; i = next_task_.fetch_add(1)) (*task_)(i);
}

void WorkSharer::For(int num_tasks, const std::function<void(int)>& task) {
  if (num_tasks <= 1) {
    if (num_tasks == 1) task(0);
    return;
  }
  task_ = &task;
  num_tasks_ = num_tasks;
  next_task_ = 0;
  {
    absl::MutexLock lock(&mutex_);
    offered_ = true;
  }
  Drain();
  const auto alone = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !helping_; };
  absl::MutexLock lock(&mutex_);
  offered_ = false;  // a helper that has not woken yet need not
  mutex_.Await(absl::Condition(&alone));
}

void WorkSharer::HelperLoop() {
  const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || offered_; };
  while (true) {
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&ready));
      if (stopping_) return;
      offered_ = false;
      helping_ = true;
    }
    Drain();
    absl::MutexLock lock(&mutex_);
    helping_ = false;
  }
}

}  // namespace tandem::npu::emulator
