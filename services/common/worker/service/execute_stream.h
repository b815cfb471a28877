// One client's stream of segment calls.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/common/worker/service/device_thread.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

// A ring of kWindow slots, each a call and its answer.  A slot goes round: read by gRPC, queued
// for the device, answered by the device thread, written by gRPC, read into again.  Calls are
// therefore answered in order, nothing is allocated per call, and a client that does not take its
// answers is no longer read from.  The device thread writes the answer itself when no other write
// is under way, so that an answer passes through no other thread on its way out.
//
// Deletes itself when the call has ended, which is after the device has let go of its slots.
class ExecuteStream final
    : public grpc::ServerBidiReactor<worker::v1::ExecuteRequest, worker::v1::ExecuteResponse> {
 public:
  static constexpr uint32_t kWindow = 16;

  // `device` is borrowed; it has room for kWindow tasks of this stream.  `on_done` is the last
  // call.
  ExecuteStream(DeviceThread& device, std::function<void(ExecuteStream*)> on_done);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancelled_.store(true, std::memory_order_relaxed); }
  void OnDone() override;

 private:
  struct Slot final : DeviceTask {
    void RunOnDevice(DeviceHost& host) override;
    ExecuteStream* stream = nullptr;
    int64_t arrival_ns = 0;
    worker::v1::ExecuteRequest request;
    worker::v1::ExecuteResponse response;
  };

  Slot& SlotAt(uint32_t count) { return slots_[count % kWindow]; }
  // The device thread has filled the answer of the oldest slot that was not answered.
  void Answered();
  bool MayFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return reads_ended_ && num_answered_ == num_read_ && !writing_;
  }

  DeviceThread& device_;
  const std::function<void(ExecuteStream*)> on_done_;
  std::atomic<bool> cancelled_{false};
  Slot slots_[kWindow];

  absl::Mutex mutex_;
  // Slots that have come so far round, counted since the start (modulo 2^32).
  uint32_t num_read_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t num_answered_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t num_written_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool reads_ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
