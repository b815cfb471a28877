#include "tests/integration/answer_proxy.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <thread>
#include <utility>

#include "services/common/base/check.h"

namespace tandem::testing {
namespace {

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& socket) {
  return grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials());
}

std::unique_ptr<grpc::Server> Serve(const std::string& socket, grpc::Service& service) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  auto server = builder.BuildAndStart();
  TANDEM_CHECK(server != nullptr);
  return server;
}

}  // namespace

class AnswerProxy::WorkerCalls final : public worker::v1::Worker::Service {
 public:
  explicit WorkerCalls(const std::string& socket)
      : stub_(worker::v1::Worker::NewStub(ChannelTo(socket))) {}

  grpc::Status Describe(grpc::ServerContext* context, const worker::v1::DescribeRequest* request,
                        worker::v1::DescribeResponse* response) override {
    const auto call = From(*context);
    return stub_->Describe(call.get(), *request, response);
  }
  grpc::Status LoadPlan(grpc::ServerContext* context, const worker::v1::LoadPlanRequest* request,
                        grpc::ServerWriter<worker::v1::LoadPlanResponse>* writer) override {
    const auto call = From(*context);
    const auto reader = stub_->LoadPlan(call.get(), *request);
    worker::v1::LoadPlanResponse message;
    while (reader->Read(&message)) writer->Write(message);
    return reader->Finish();
  }
  grpc::Status GetStatus(grpc::ServerContext* context, const worker::v1::GetStatusRequest* request,
                         worker::v1::GetStatusResponse* response) override {
    const auto call = From(*context);
    return stub_->GetStatus(call.get(), *request, response);
  }

 private:
  static std::unique_ptr<grpc::ClientContext> From(const grpc::ServerContext& context) {
    auto call = grpc::ClientContext::FromServerContext(context);
    call->set_wait_for_ready(true);
    return call;
  }
  const std::unique_ptr<worker::v1::Worker::Stub> stub_;
};

class AnswerProxy::ExecutionCalls final : public worker::v1::Execution::Service {
 public:
  ExecutionCalls(AnswerProxy& proxy, const std::string& socket)
      : proxy_(proxy), stub_(worker::v1::Execution::NewStub(ChannelTo(socket))) {}

  grpc::Status Execute(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<worker::v1::ExecuteResponse,
                                                worker::v1::ExecuteRequest>* gateway) override {
    const auto call = grpc::ClientContext::FromServerContext(*context);
    const auto worker = stub_->Execute(call.get());
    std::thread requests([&] {
      worker::v1::ExecuteRequest request;
      while (gateway->Read(&request)) {
        ++proxy_.num_requests_;
        if (!worker->Write(request)) break;
      }
      worker->WritesDone();
    });
    worker::v1::ExecuteResponse answer;
    while (worker->Read(&answer)) {
      for (int times = proxy_.Spoil(answer); times > 0; --times) gateway->Write(answer);
    }
    context->TryCancel();
    requests.join();
    return worker->Finish();
  }

 private:
  AnswerProxy& proxy_;
  const std::unique_ptr<worker::v1::Execution::Stub> stub_;
};

AnswerProxy::AnswerProxy(const std::string& socket, const std::string& worker_socket)
    : worker_calls_(std::make_unique<WorkerCalls>(worker_socket)),
      execution_calls_(std::make_unique<ExecutionCalls>(*this, worker_socket + ".exec")),
      server_(Serve(socket, *worker_calls_)),
      execution_server_(Serve(socket + ".exec", *execution_calls_)) {}

AnswerProxy::~AnswerProxy() {
  for (grpc::Server* server : {server_.get(), execution_server_.get()}) {
    server->Shutdown(std::chrono::system_clock::now());
    server->Wait();
  }
}

void AnswerProxy::SetFault(Fault fault) {
  const std::lock_guard lock(mutex_);
  fault_ = std::move(fault);
}

int AnswerProxy::Spoil(worker::v1::ExecuteResponse& answer) {
  const std::lock_guard lock(mutex_);
  return fault_ == nullptr ? 1 : fault_(answer);
}

}  // namespace tandem::testing
