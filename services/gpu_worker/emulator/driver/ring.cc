#include "services/gpu_worker/emulator/driver/ring.h"

#include <atomic>
#include <utility>

namespace tandem::rdna {

Ring::Ring(SyncTable& sync, std::function<void(const Job&)> run)
    : sync_(sync), run_(std::move(run)), thread_([this] { Loop(); }) {}

Ring::~Ring() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

uint64_t Ring::Submit(Job job) {
  const std::scoped_lock lock(mutex_);
  job.sequence = ++last_sequence_;
  pending_[job.sequence] = job.done;
  jobs_.push_back(std::move(job));
  wake_.notify_all();
  return last_sequence_;
}

FencePtr Ring::Find(uint64_t sequence) const {
  const std::scoped_lock lock(mutex_);
  const auto it = pending_.find(sequence);
  return it == pending_.end() ? nullptr : it->second;
}

void Ring::Settle() {
  std::unique_lock lock(mutex_);
  const uint64_t last = last_sequence_;
  settled_.wait(lock, [this, last] {
    return waits_for_fence_ || pending_.empty() || pending_.begin()->first > last;
  });
}

void Ring::Loop() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      waits_for_fence_ = !job.waits.empty();
      if (waits_for_fence_) settled_.notify_all();
    }
    for (const FencePtr& fence : job.waits) {
      bool stopped = false;
      while (!stopped && !sync_.Wait(fence, DeadlineIn(100))) {
        const std::scoped_lock lock(mutex_);
        stopped = stop_;
      }
    }
    {
      const std::scoped_lock lock(mutex_);
      waits_for_fence_ = false;
    }
    run_(job);
    if (job.user_fence != nullptr) {
      std::atomic_ref<uint64_t>(*job.user_fence).store(job.sequence);
    }
    sync_.Signal(job.done);
    const std::scoped_lock lock(mutex_);
    pending_.erase(job.sequence);
    settled_.notify_all();
  }
}

}  // namespace tandem::rdna
