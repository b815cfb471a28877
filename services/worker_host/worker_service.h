// The gRPC services tandem.worker.v1.Worker and Execution around a Worker.
//
//   PATH       Worker: callbacks on gRPC's threads --push--+
//                                                          v
//   PATH.exec  Execution: calls ----- polled by ----> DeviceThread --> DeviceHost --> Worker
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/rpc/server.h"
#include "services/common/worker/worker.h"
#include "services/worker_host/device_host.h"
#include "services/worker_host/device_thread.h"
#include "services/worker_host/execution.h"
#include "services/worker_host/weight_source.h"
#include "tandem/worker/v1/worker.grpc.pb.h"

namespace tandem {

struct WorkerServiceOptions {
  // Idle time after which the device's health is checked.
  absl::Duration idle_check_interval = absl::Seconds(5);
  // If a segment runs for longer, the device hangs.
  absl::Duration stuck_after = absl::Seconds(20);
  uint32_t max_execute_streams = 16;
  uint32_t execution_port = 0;  // of Execution, where Worker listens on a port too; 0: a free one
  // Measure the device's ceilings once, at the first idle check with a plan in force.  This takes
  // about half a second, in which a segment would wait.
  bool measure_ceilings = false;
  uint32_t max_tasks = 16;  // LoadPlan, UnloadPlan and MeasureCeilings calls that may wait
  DeviceHost::Power power;  // of the device; empty: it cannot be read
};

// Thread-safe.
class WorkerService final : public worker::v1::Worker::CallbackService {
 public:
  // Listens for Execution beside each address of `server`.  The caller registers this service with
  // a Server on the same addresses.  Errors: as Server::Start.  `source`: Borrowed; must outlive
  // this.
  static absl::StatusOr<std::unique_ptr<WorkerService>> Create(
      std::unique_ptr<tandem::Worker> worker, WeightSource& source, const ServerOptions& server,
      WorkerServiceOptions options = {});
  // REQUIRES: the server of this service is shut down.
  ~WorkerService() override;

  // Starts the device thread, which runs the self-test.  It calls `on_serving` whenever the worker
  // becomes usable or unusable.
  void Start(std::function<void(bool)> on_serving);
  worker::v1::GetStatusResponse Status() const { return host_.GetStatus(); }
  // Whether the device hangs.
  bool IsStuck() const { return host_.IsStuck(); }
  // Whether the self-test has run; the device thread's count (DeviceHost::turns); whether it runs a
  // load or another long call.
  bool self_tested() const { return !absl::IsUnavailable(host_.Describe().status()); }
  uint64_t turns() const { return host_.turns(); }
  bool at_task() const { return device_->at_task(); }
  // Ends Execution; returns when the device thread has ended its streams.
  void Drain();

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const worker::v1::DescribeRequest* request,
                                     worker::v1::DescribeResponse* response) override;
  grpc::ServerWriteReactor<worker::v1::LoadPlanResponse>* LoadPlan(
      grpc::CallbackServerContext* context, const worker::v1::LoadPlanRequest* request) override;
  grpc::ServerUnaryReactor* UnloadPlan(grpc::CallbackServerContext* context,
                                       const worker::v1::UnloadPlanRequest* request,
                                       worker::v1::UnloadPlanResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const worker::v1::GetStatusRequest* request,
                                      worker::v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* MeasureCeilings(grpc::CallbackServerContext* context,
                                            const worker::v1::MeasureCeilingsRequest* request,
                                            worker::v1::MeasureCeilingsResponse* response) override;

 private:
  WorkerService(std::unique_ptr<tandem::Worker> worker, WeightSource& source,
                WorkerServiceOptions options);

  const WorkerServiceOptions options_;
  std::function<void(bool)> on_serving_;
  DeviceHost host_;
  worker::v1::Execution::AsyncService execution_service_;
  Execution execution_;
  uint32_t execution_port_ = 0;
  std::unique_ptr<Server> execution_server_;
  std::unique_ptr<DeviceThread> device_;  // its thread uses the members above
};

}  // namespace tandem
