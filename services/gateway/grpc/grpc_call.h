// Calls of the public API over gRPC.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "services/gateway/grpc/call_origin.h"
#include "services/gateway/grpc/unread_answers.h"
#include "services/gateway/handlers/rpc_call.h"
#include "services/gateway/model/client_status.h"

namespace tandem::gateway {

// The common part of unary calls and streams.  gRPC calls no reaction before Start returns, so not
// while the handler runs.
template <class Reactor>
class GrpcCall : public RpcCall, public Reactor {
 public:
  // The call lives until gRPC and the handler release it.  gRPC owns `context`, and the request and
  // response in `args`, until then.
  template <class Call, class... Args>
  static Reactor* Start(const RpcHandler& handler, grpc::CallbackServerContext& context,
                        const TraceSampler& sampler, Args&&... args) {
    RpcCaller caller = CallerOf(context, sampler);
    context.AddInitialMetadata(kTraceParent, FormatTraceParent(caller.trace.own));
    const auto call =
        std::make_shared<Call>(std::move(caller), context, std::forward<Args>(args)...);
    call->self_ = call;
    handler(call);
    return call.get();
  }

  void NameRequest(const std::string& id) override { context_.AddInitialMetadata(kRequestId, id); }
  void SetCallbacks(std::function<void(bool ok)> on_written,
                    std::function<void()> on_gone) override {
    on_written_ = std::move(on_written);
    on_gone_ = std::move(on_gone);
  }
  bool gone() const override { return gone_; }

  void OnCancel() override {
    gone_ = true;
    if (on_gone_) on_gone_();
  }
  void OnDone() override {
    on_written_ = nullptr;
    on_gone_ = nullptr;
    self_.reset();
  }

 protected:
  GrpcCall(RpcCaller caller, grpc::CallbackServerContext& context,
           const google::protobuf::Message& request)
      : RpcCall(std::move(caller)), context_(context), request_(request) {}
  const google::protobuf::Message& request_message() const override { return request_; }
  void OnWritten(bool ok) {
    if (on_written_) on_written_(ok);
  }

 private:
  grpc::CallbackServerContext& context_;
  const google::protobuf::Message& request_;
  std::function<void(bool ok)> on_written_;
  std::function<void()> on_gone_;
  std::atomic<bool> gone_ = false;
  std::shared_ptr<GrpcCall> self_;  // gRPC's hold, until OnDone
};

class GrpcUnaryCall final : public GrpcCall<grpc::ServerUnaryReactor> {
 public:
  // gRPC owns `response` until the call is over.  `answers`: Borrowed; must outlive the server.
  GrpcUnaryCall(RpcCaller caller, grpc::CallbackServerContext& context,
                const google::protobuf::Message& request, google::protobuf::Message& response,
                UnreadAnswers& answers)
      : GrpcCall(std::move(caller), context, request), response_(response), answers_(answers) {}

  bool Write() override { return false; }  // Finish sends the only message
  void Finish(absl::Status status) override {
    if (status.ok()) {
      auto room = answers_.Hold(caller().client->tenant(), response_);
      status = room.status();
      if (room.ok()) room_ = *std::move(room);
    }
    if (!status.ok()) response_.Clear();
    ServerUnaryReactor::Finish(ToClientStatus(status));
  }
  void OnDone() override {
    room_.reset();
    GrpcCall::OnDone();
  }

 private:
  google::protobuf::Message& response_message() override { return response_; }

  google::protobuf::Message& response_;
  UnreadAnswers& answers_;
  std::unique_ptr<BodyBudget::Share> room_;  // memory for the answer
};

template <class Response>
class GrpcStreamCall final : public GrpcCall<grpc::ServerWriteReactor<Response>> {
 public:
  using Reactor = grpc::ServerWriteReactor<Response>;
  GrpcStreamCall(RpcCaller caller, grpc::CallbackServerContext& context,
                 const google::protobuf::Message& request)
      : GrpcCall<Reactor>(std::move(caller), context, request) {}

  bool Write() override {
    this->StartWrite(&response_);
    return true;
  }
  void Finish(absl::Status status) override {
    if (status.ok()) {
      this->StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
    } else {
      Reactor::Finish(ToClientStatus(status));
    }
  }
  void OnWriteDone(bool ok) override { this->OnWritten(ok); }

 private:
  google::protobuf::Message& response_message() override { return response_; }

  Response response_;  // must not change while a write is under way
};

}  // namespace tandem::gateway
