// One LoadPlan call: sends progress, then the report.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/worker_host/device_thread.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

// If the client reads slowly, only the latest progress is sent.  Deletes itself.
class LoadPlanStream final : public grpc::ServerWriteReactor<worker::v1::LoadPlanResponse>,
                             public DeviceTask {
 public:
  explicit LoadPlanStream(const worker::v1::LoadPlanRequest& request) : request_(request) {}

  const worker::v1::LoadPlanRequest& request() const { return request_; }

  void RunOnDevice(DeviceHost& host) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancelled_.store(true, std::memory_order_relaxed); }
  void OnDone() override { delete this; }

 private:
  void Report(double fraction, std::string_view phase);
  void Conclude(absl::StatusOr<worker::v1::LoadPlanReport> result);
  void WriteConclusion();

  const worker::v1::LoadPlanRequest request_;
  std::atomic<bool> cancelled_{false};

  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // next_ is to be written
  bool concluded_ ABSL_GUARDED_BY(mutex_) = false;
  worker::v1::LoadPlanProgress next_ ABSL_GUARDED_BY(mutex_);
  // Being written; owned by the thread that set writing_ or concluded_.
  worker::v1::LoadPlanResponse message_;
  absl::StatusOr<worker::v1::LoadPlanReport> result_;
};

}  // namespace tandem
