// The thread that owns the device.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "services/worker_host/device_host.h"

namespace tandem {

// The target of a completion queue's tags.
class DeviceEvent {
 public:
  // Called from the device thread, once for each operation with this tag.
  virtual void Happened(bool ok) = 0;

 protected:
  ~DeviceEvent() = default;
};

class DeviceThread;

// A task for the device other than a segment.
class DeviceTask : private DeviceEvent {
 public:
  virtual ~DeviceTask() = default;
  // Called from the device thread; may end this object's life.
  virtual void RunOnDevice(DeviceHost& host) = 0;

 private:
  friend class DeviceThread;
  void Happened(bool ok) final;

  DeviceThread* thread_ = nullptr;
  grpc::Alarm alarm_;           // puts this into the completion queue
  uint32_t num_postponed_ = 0;  // times that it was put there once more
};

// The thread waits on a gRPC completion queue and polls the queue's connections itself.  So a segment
// call goes from the socket to the device and back on one thread.  Other tasks come through the same
// queue.  While calls run it waits for the device; if several plans share that, it looks at the queue
// between two submissions.  A task waits, for a while, for a call that awaits its masks.  After
// `idle_interval` without a call the thread checks the device's health.
class DeviceThread {
 public:
  // `host`: Borrowed; must outlive this.  The thread begins with Start.
  DeviceThread(DeviceHost& host, std::unique_ptr<grpc::ServerCompletionQueue> queue,
               uint32_t max_tasks, absl::Duration idle_interval);
  // REQUIRES: the queue's server is shut down, and Push is no longer called.  Runs the tasks that
  // are still queued, and ends once `may_end` returns true.
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Starts the thread: it calls `begin`, runs the self-test, then serves the queue.  `may_end`,
  // asked from the thread too, is false while operations are still to be started on the queue.
  void Start(std::function<void()> begin, std::function<bool()> may_end);
  // Thread-safe.  False if `max_tasks` tasks wait already; the task does not run then.
  bool Push(DeviceTask* task);

  // Whether a task runs.  Thread-safe.
  bool at_task() const { return at_task_.load(std::memory_order_relaxed); }

  grpc::ServerCompletionQueue* queue() { return queue_.get(); }

 private:
  friend class DeviceTask;
  struct Stop final : DeviceEvent {
    void Happened(bool /*ok*/) override { requested = true; }
    bool requested = false;  // used by the device thread only
    grpc::Alarm alarm;
  };
  void Run();
  // Handles the next event, if one comes before `deadline`.
  grpc::CompletionQueue::NextStatus TakeEvent(std::chrono::system_clock::time_point deadline);

  DeviceHost& host_;
  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  const uint32_t max_tasks_;
  const absl::Duration idle_interval_;
  std::atomic<uint32_t> num_tasks_{0};
  std::atomic<bool> at_task_{false};
  std::function<bool()> may_end_;
  Stop stop_;
  std::thread thread_;
};

}  // namespace tandem
