#include "services/common/worker/service/device_thread.h"

#include "absl/time/clock.h"
#include "services/common/base/check.h"

namespace tandem {

DeviceThread::DeviceThread(DeviceHost& host, size_t capacity, size_t max_control,
                           absl::Duration idle_interval)
    : host_(host), max_control_(max_control), idle_interval_(idle_interval), ring_(capacity) {}

DeviceThread::~DeviceThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    pushed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void DeviceThread::Start() {
  thread_ = std::thread([this] { Run(); });
}

void DeviceThread::Push(DeviceTask* task) {
  absl::MutexLock lock(&mutex_);
  PushLocked(task, /*is_control=*/false);
}

bool DeviceThread::PushControl(DeviceTask* task) {
  absl::MutexLock lock(&mutex_);
  if (num_control_ == max_control_) return false;
  ++num_control_;
  PushLocked(task, /*is_control=*/true);
  return true;
}

void DeviceThread::PushLocked(DeviceTask* task, bool is_control) {
  TANDEM_CHECK(size_ < ring_.size());
  ring_[(head_ + size_) % ring_.size()] = {task, is_control};
  if (++size_ == 1) pushed_.Signal();
}

DeviceTask* DeviceThread::Pop(bool& stop) {
  const absl::Time deadline = absl::Now() + idle_interval_;
  absl::MutexLock lock(&mutex_);
  while (size_ == 0 && !stopping_) {
    if (pushed_.WaitWithDeadline(&mutex_, deadline)) break;
  }
  if (size_ == 0) {
    stop = stopping_;
    return nullptr;
  }
  const Entry entry = ring_[head_];
  head_ = (head_ + 1) % ring_.size();
  --size_;
  if (entry.is_control) --num_control_;
  return entry.task;
}

void DeviceThread::Run() {
  host_.SelfTest();
  bool stop = false;
  while (!stop) {
    DeviceTask* task = Pop(stop);
    if (task != nullptr) {
      task->RunOnDevice(host_);
    } else if (!stop) {
      host_.CheckIdle();
    }
  }
}

}  // namespace tandem
