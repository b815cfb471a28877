#include "services/npu_worker/emulator/kernels/parallel_for.h"

namespace tandem::npu::emulator {

ParallelFor::ParallelFor() : helper_([this] { HelperLoop(); }) {}

ParallelFor::~ParallelFor() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  helper_.join();
}

void ParallelFor::Drain() {
  for (int i = next_task_.fetch_add(1); i < num_tasks_; i = next_task_.fetch_add(1)) (*task_)(i);
}

void ParallelFor::Run(int num_tasks, const std::function<void(int)>& task) {
  if (num_tasks <= 1) {
    if (num_tasks == 1) task(0);
    return;
  }
  task_ = &task;
  num_tasks_ = num_tasks;
  next_task_ = 0;
  {
    const MutexLock lock(mutex_);
    offered_ = true;
    changed_.SignalAll();
  }
  Drain();
  const MutexLock lock(mutex_);
  offered_ = false;  // a helper that has not woken yet need not
  while (helping_) changed_.Wait(mutex_);
}

void ParallelFor::HelperLoop() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && !offered_) changed_.Wait(mutex_);
      if (stopping_) return;
      offered_ = false;
      helping_ = true;
    }
    Drain();
    const MutexLock lock(mutex_);
    helping_ = false;
    changed_.SignalAll();
  }
}

}  // namespace tandem::npu::emulator
