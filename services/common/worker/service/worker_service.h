// The gRPC service tandem.worker.v1.Worker round a Worker.
//
//   reactions --push--> DeviceThread --owns--> DeviceHost --> Worker
//        ^                    |
//        +--- StartWrite -----+
#pragma once

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/worker/service/device_host.h"
#include "services/common/worker/service/device_thread.h"
#include "services/common/worker/service/weight_source.h"
#include "services/common/worker/worker.h"
#include "tandem/worker/v1/worker.grpc.pb.h"

namespace tandem {

class ExecuteStream;

struct WorkerServiceOptions {
  // How long the device may be idle before its health is checked.
  absl::Duration idle_check_interval = absl::Seconds(5);
  uint32_t max_execute_streams = 16;
  uint32_t max_control_calls = 16;  // LoadPlan and UnloadPlan calls that may wait
};

// Thread-safe.
class WorkerService final : public worker::v1::Worker::CallbackService {
 public:
  // `source` is borrowed and must outlive this.
  WorkerService(std::unique_ptr<tandem::Worker> worker, WeightSource& source,
                WorkerServiceOptions options = {});
  // The server must have been shut down.
  ~WorkerService() override;

  // Starts the device thread, which runs the self-test.  `on_serving` is called from it whenever
  // the worker becomes usable or stops being so.
  void Start(std::function<void(bool)> on_serving);
  // Cancels every Execute stream, and takes no new one; they end once the device lets go of them.
  void Drain();

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const worker::v1::DescribeRequest* request,
                                     worker::v1::DescribeResponse* response) override;
  grpc::ServerWriteReactor<worker::v1::LoadPlanResponse>* LoadPlan(
      grpc::CallbackServerContext* context, const worker::v1::LoadPlanRequest* request) override;
  grpc::ServerUnaryReactor* UnloadPlan(grpc::CallbackServerContext* context,
                                       const worker::v1::UnloadPlanRequest* request,
                                       worker::v1::UnloadPlanResponse* response) override;
  grpc::ServerBidiReactor<worker::v1::ExecuteRequest, worker::v1::ExecuteResponse>* Execute(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const worker::v1::GetStatusRequest* request,
                                      worker::v1::GetStatusResponse* response) override;

 private:
  void Forget(ExecuteStream* stream);

  const WorkerServiceOptions options_;
  std::function<void(bool)> on_serving_;
  DeviceHost host_;
  absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<ExecuteStream*, grpc::CallbackServerContext*> streams_
      ABSL_GUARDED_BY(mutex_);
  DeviceThread device_;  // last: its thread uses what is above
};

}  // namespace tandem
