#include "services/worker_host/worker_service.h"

#include <algorithm>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/common/rpc/execution_address.h"
#include "services/common/rpc/status.h"
#include "services/worker_host/load_plan_stream.h"

namespace tandem {
namespace {

// Refuses a call before it begins.
template <typename Reactor>
class Refusal final : public Reactor {
 public:
  explicit Refusal(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

class UnloadCall final : public grpc::ServerUnaryReactor, public DeviceTask {
 public:
  explicit UnloadCall(const worker::v1::UnloadPlanRequest& request) : request_(request) {}
  void RunOnDevice(DeviceHost& host) override { Finish(ToGrpcStatus(host.Unload(request_))); }
  void OnDone() override { delete this; }

 private:
  const worker::v1::UnloadPlanRequest request_;
};

class CeilingsCall final : public grpc::ServerUnaryReactor, public DeviceTask {
 public:
  explicit CeilingsCall(worker::v1::MeasureCeilingsResponse* response) : response_(response) {}
  void RunOnDevice(DeviceHost& host) override {
    const auto measured = host.MeasureCeilings();
    if (measured.ok()) *response_ = *measured;
    Finish(ToGrpcStatus(measured.status()));
  }
  void OnDone() override { delete this; }

 private:
  worker::v1::MeasureCeilingsResponse* const response_;  // gRPC's; lives until Finish
};

absl::Status QueueFull() {
  return absl::ResourceExhaustedError("too many calls wait for the device; try again");
}

}  // namespace

WorkerService::WorkerService(std::unique_ptr<tandem::Worker> worker, WeightSource& source,
                             WorkerServiceOptions options)
    : options_(std::move(options)),
      host_(
          std::move(worker), source, options_.stuck_after, options_.measure_ceilings,
          [this](bool serving) {
            if (on_serving_) on_serving_(serving);
          },
          options_.power),
      execution_(execution_service_, host_, options_.max_execute_streams) {}

absl::StatusOr<std::unique_ptr<WorkerService>> WorkerService::Create(
    std::unique_ptr<tandem::Worker> worker, WeightSource& source, const ServerOptions& server,
    WorkerServiceOptions options) {
  std::unique_ptr<WorkerService> service(new WorkerService(std::move(worker), source, options));
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  ServerOptions beside = server;
  for (std::string& address : beside.listen) {
    address = ExecutionAddress(address, options.execution_port);
  }
  beside.with_plugins = false;
  beside.configure = [&queue](grpc::ServerBuilder& builder) {
    queue = builder.AddCompletionQueue();
  };
  TANDEM_ASSIGN_OR_RETURN(service->execution_server_,
                          Server::Start(beside, {{worker::v1::Execution::service_full_name(),
                                                  &service->execution_service_}}));
  for (const std::string& target : service->execution_server_->targets()) {
    service->execution_port_ = std::max(service->execution_port_, PortOf(target));
  }
  service->device_ = std::make_unique<DeviceThread>(service->host_, std::move(queue),
                                                    options.max_tasks, options.idle_check_interval);
  return service;
}

WorkerService::~WorkerService() {
  Drain();
  device_.reset();
}

void WorkerService::Start(std::function<void(bool)> on_serving) {
  on_serving_ = std::move(on_serving);
  // Not by device_: the destructor may be resetting it when the thread begins.
  device_->Start([this, queue = device_->queue()] { execution_.Begin(queue); },
                 [this] { return execution_.ended(); });
}

void WorkerService::Drain() {
  if (execution_server_ != nullptr) execution_server_->Shutdown(absl::ZeroDuration());
}

grpc::ServerUnaryReactor* WorkerService::Describe(grpc::CallbackServerContext* context,
                                                  const worker::v1::DescribeRequest* /*request*/,
                                                  worker::v1::DescribeResponse* response) {
  auto* reactor = context->DefaultReactor();
  const absl::StatusOr<worker::v1::DescribeResponse> description = host_.Describe();
  if (description.ok()) {
    *response = *description;
    response->set_execution_port(execution_port_);
  }
  reactor->Finish(ToGrpcStatus(description.status()));
  return reactor;
}

grpc::ServerWriteReactor<worker::v1::LoadPlanResponse>* WorkerService::LoadPlan(
    grpc::CallbackServerContext* /*context*/, const worker::v1::LoadPlanRequest* request) {
  using Refused = Refusal<grpc::ServerWriteReactor<worker::v1::LoadPlanResponse>>;
  const absl::Status admitted = host_.CheckEpoch(request->epoch());
  if (!admitted.ok()) return new Refused(admitted);
  auto* stream = new LoadPlanStream(*request);
  if (device_->Push(stream)) return stream;
  delete stream;
  return new Refused(QueueFull());
}

grpc::ServerUnaryReactor* WorkerService::UnloadPlan(grpc::CallbackServerContext* /*context*/,
                                                    const worker::v1::UnloadPlanRequest* request,
                                                    worker::v1::UnloadPlanResponse* /*response*/) {
  auto* call = new UnloadCall(*request);
  if (device_->Push(call)) return call;
  delete call;
  return new Refusal<grpc::ServerUnaryReactor>(QueueFull());
}

grpc::ServerUnaryReactor* WorkerService::MeasureCeilings(
    grpc::CallbackServerContext* /*context*/, const worker::v1::MeasureCeilingsRequest* /*request*/,
    worker::v1::MeasureCeilingsResponse* response) {
  auto* call = new CeilingsCall(response);
  if (device_->Push(call)) return call;
  delete call;
  return new Refusal<grpc::ServerUnaryReactor>(QueueFull());
}

grpc::ServerUnaryReactor* WorkerService::GetStatus(grpc::CallbackServerContext* context,
                                                   const worker::v1::GetStatusRequest* /*request*/,
                                                   worker::v1::GetStatusResponse* response) {
  auto* reactor = context->DefaultReactor();
  *response = host_.GetStatus();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tandem
