// The thread that owns the device.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "services/common/worker/service/device_host.h"

namespace tandem {

// What a completion queue's tags point to.
class DeviceEvent {
 public:
  // Called from the device thread, once for each operation that was given this as its tag.
  virtual void Happened(bool ok) = 0;

 protected:
  ~DeviceEvent() = default;
};

class DeviceThread;

// Something else than a segment that is to be done with the device.
class DeviceTask : private DeviceEvent {
 public:
  virtual ~DeviceTask() = default;
  // Called from the device thread; may end this object's life.
  virtual void RunOnDevice(DeviceHost& host) = 0;

 private:
  friend class DeviceThread;
  void Happened(bool ok) final;

  DeviceThread* thread_ = nullptr;
  grpc::Alarm alarm_;  // takes this through the completion queue
};

// The thread waits on a gRPC completion queue and on nothing else: it polls the connections whose
// calls the queue serves itself, so that a segment call goes from the socket to the device and
// back without passing through another thread.  Other tasks come through the same queue.  When
// nothing has come for `idle_interval` the device's health is checked.
class DeviceThread {
 public:
  // `host` is borrowed and must outlive this.  Nothing happens before Start.
  DeviceThread(DeviceHost& host, std::unique_ptr<grpc::ServerCompletionQueue> queue,
               uint32_t max_tasks, absl::Duration idle_interval);
  // The server of the queue must have been shut down, and Push must not be called any more.  Runs
  // what is still queued, and ends once `may_end` says so.
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Starts the thread: it calls `begin`, runs the self-test, then serves the queue.  `may_end`,
  // asked from the thread too, is false while operations are still to be started on the queue.
  void Start(std::function<void()> begin, std::function<bool()> may_end);
  // Thread-safe.  False, and the task is not run, when `max_tasks` have yet to begin.
  bool Push(DeviceTask* task);

  // Whether a task is being run.  Thread-safe.
  bool at_task() const { return at_task_.load(std::memory_order_relaxed); }

  grpc::ServerCompletionQueue* queue() { return queue_.get(); }

 private:
  friend class DeviceTask;
  struct Stop final : DeviceEvent {
    void Happened(bool /*ok*/) override { requested = true; }
    bool requested = false;  // device thread's own
    grpc::Alarm alarm;
  };
  void Run();

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
