// The thread that owns the device, and its queue.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/worker/service/device_host.h"

namespace tandem {

// Something to be done with the device.  Lives in whatever asked for it; the queue holds
// pointers alone, so that a push allocates nothing.
class DeviceTask {
 public:
  // Called once per push, from the device thread.
  virtual void RunOnDevice(DeviceHost& host) = 0;

 protected:
  ~DeviceTask() = default;
};

// Thread-safe.  Reactions push and never wait; the thread runs tasks in the order of their
// pushes, and checks the device's health when it has been idle for `idle_interval`.
class DeviceThread {
 public:
  // `host` is borrowed and must outlive this.  Nothing runs before Start.  `max_control` of the
  // `capacity` tasks may be control tasks.
  DeviceThread(DeviceHost& host, size_t capacity, size_t max_control, absl::Duration idle_interval);
  // Runs what is still queued, then ends.
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Starts the thread; its first act is the self-test.
  void Start();
  // REQUIRES: fewer than capacity - max_control tasks pushed by this have yet to begin.
  void Push(DeviceTask* task);
  // False, and the task is not run, when `max_control` tasks pushed by this have yet to begin.
  bool PushControl(DeviceTask* task);

 private:
  void Run();
  // The next task; nullptr after `idle_interval` without one, or at the end.
  DeviceTask* Pop(bool& stop);
  void PushLocked(DeviceTask* task, bool is_control) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Entry {
    DeviceTask* task = nullptr;
    bool is_control = false;
  };

  DeviceHost& host_;
  const size_t max_control_;
  const absl::Duration idle_interval_;
  absl::Mutex mutex_;
  absl::CondVar pushed_;
  std::vector<Entry> ring_ ABSL_GUARDED_BY(mutex_);
  size_t head_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_control_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem
