#include "services/common/worker/service/worker_service.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/rpc/status.h"
#include "services/common/worker/service/execute_stream.h"
#include "services/common/worker/service/load_plan_stream.h"

namespace tandem {
namespace {

// Ends a call that is refused before it has begun.
template <typename Reactor>
class Refusal final : public Reactor {
 public:
  explicit Refusal(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

class UnloadCall final : public grpc::ServerUnaryReactor, public DeviceTask {
 public:
  explicit UnloadCall(uint64_t epoch) : epoch_(epoch) {}
  void RunOnDevice(DeviceHost& host) override { Finish(ToGrpcStatus(host.Unload(epoch_))); }
  void OnDone() override { delete this; }

 private:
  const uint64_t epoch_;
};

absl::Status QueueFull() {
  return absl::ResourceExhaustedError("too many calls wait for the device; try again");
}

}  // namespace

WorkerService::WorkerService(std::unique_ptr<tandem::Worker> worker, WeightSource& source,
                             WorkerServiceOptions options)
    : options_(options),
      host_(std::move(worker), source,
            [this](bool serving) {
              if (on_serving_) on_serving_(serving);
            }),
      device_(host_,
              options.max_execute_streams * ExecuteStream::kWindow + options.max_control_calls,
              options.max_control_calls, options.idle_check_interval) {}

WorkerService::~WorkerService() = default;

void WorkerService::Start(std::function<void(bool)> on_serving) {
  on_serving_ = std::move(on_serving);
  device_.Start();
}

void WorkerService::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  for (auto& [stream, context] : streams_) context->TryCancel();
}

void WorkerService::Forget(ExecuteStream* stream) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
}

grpc::ServerUnaryReactor* WorkerService::Describe(grpc::CallbackServerContext* context,
                                                  const worker::v1::DescribeRequest* /*request*/,
                                                  worker::v1::DescribeResponse* response) {
  auto* reactor = context->DefaultReactor();
  absl::StatusOr<worker::v1::DescribeResponse> description = host_.Describe();
  if (description.ok()) *response = *std::move(description);
  reactor->Finish(ToGrpcStatus(description.status()));
  return reactor;
}

grpc::ServerWriteReactor<worker::v1::LoadPlanResponse>* WorkerService::LoadPlan(
    grpc::CallbackServerContext* /*context*/, const worker::v1::LoadPlanRequest* request) {
  using Refused = Refusal<grpc::ServerWriteReactor<worker::v1::LoadPlanResponse>>;
  const absl::Status admitted = host_.AdmitEpoch(request->epoch());
  if (!admitted.ok()) return new Refused(admitted);
  auto* stream = new LoadPlanStream(*request);
  if (device_.PushControl(stream)) return stream;
  delete stream;
  return new Refused(QueueFull());
}

grpc::ServerUnaryReactor* WorkerService::UnloadPlan(grpc::CallbackServerContext* /*context*/,
                                                    const worker::v1::UnloadPlanRequest* request,
                                                    worker::v1::UnloadPlanResponse* /*response*/) {
  auto* call = new UnloadCall(request->epoch());
  if (device_.PushControl(call)) return call;
  delete call;
  return new Refusal<grpc::ServerUnaryReactor>(QueueFull());
}

grpc::ServerBidiReactor<worker::v1::ExecuteRequest, worker::v1::ExecuteResponse>*
WorkerService::Execute(grpc::CallbackServerContext* context) {
  using Refused =
      Refusal<grpc::ServerBidiReactor<worker::v1::ExecuteRequest, worker::v1::ExecuteResponse>>;
  absl::MutexLock lock(&mutex_);
  if (draining_) return new Refused(absl::UnavailableError("the worker is shutting down"));
  if (streams_.size() >= options_.max_execute_streams) {
    return new Refused(absl::ResourceExhaustedError(
        absl::StrFormat("%d streams are open, the most this worker takes", streams_.size())));
  }
  auto* stream = new ExecuteStream(device_, [this](ExecuteStream* done) { Forget(done); });
  streams_.emplace(stream, context);
  return stream;
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
