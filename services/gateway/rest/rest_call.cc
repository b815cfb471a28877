#include "services/gateway/rest/rest_call.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/error_details.h"
#include "services/gateway/rest/rest_format.h"
#include "services/gateway/rest/rest_input.h"
#include "services/gateway/service/call_origin.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

grpc::ByteBuffer Serialize(const Message& message) {
  const std::string bytes = message.SerializeAsString();
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// What a response says its request has used; zero where it does not.
v1::Usage UsageOf(const Message& response) {
  const FieldDescriptor* field = response.GetDescriptor()->FindFieldByName("usage");
  if (field == nullptr || field->message_type() != v1::Usage::descriptor() ||
      !response.GetReflection()->HasField(response, field)) {
    return {};
  }
  return dynamic_cast<const v1::Usage&>(response.GetReflection()->GetMessage(response, field));
}

}  // namespace

// One call.
//
//   read -> JSON -> Write -> on_drained -> read ...
//
// The next message is read when the last is with the kernel, so that a slow client holds back its
// own call, and the engine merges what it has to say meanwhile.  Thread-safe.
class RestCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                       public std::enable_shared_from_this<RestCall> {
 public:
  // `calls`: Borrowed; must outlive the call.
  RestCall(RestCalls& calls, std::shared_ptr<const RestBinding> binding, HttpRequest request,
           std::shared_ptr<HttpResponder> responder);

  void Begin(grpc::GenericStub& stub, const RestInput& input, const RequestTrace& trace);
  // Nobody waits for the answer: the call is cancelled and read to its end.
  void Abandon();

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void Cancel();
  absl::Status TakeMessage();
  void ReadNext();
  void EndStream(const absl::Status& status);

  RestCalls& calls_;
  const std::shared_ptr<const RestBinding> binding_;  // shared with the route
  const std::shared_ptr<HttpResponder> responder_;    // shared with the server
  const std::shared_ptr<HttpClient> client_;          // shared with the server's table of keys
  const std::unique_ptr<google::protobuf::Message> message_;  // of the reader
  const bool streaming_;
  const bool events_;
  const std::string method_path_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  std::optional<std::string> body_;  // a unary call's answer
  absl::Status broken_;              // why the answer cannot be written

  Mutex mutex_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Holds the channel; null once the call is done.  Shared with who cancels.
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
};

RestCalls::~RestCalls() {
  std::set<std::shared_ptr<RestCall>> left;
  {
    MutexLock lock(mutex_);
    left = calls_;
  }
  for (const auto& call : left) call->Abandon();
  MutexLock lock(mutex_);
  while (!calls_.empty()) removed_.Wait(mutex_);
}

absl::Status RestCalls::Start(std::shared_ptr<const RestBinding> binding, HttpRequest request,
                              std::shared_ptr<HttpResponder> responder) {
  const auto input = ReadRestInput(*binding, request);
  if (!input.ok()) {
    responder->SendStatus(input.status());
    return input.status();
  }
  const RequestTrace trace = request.trace;
  const auto call = std::make_shared<RestCall>(*this, std::move(binding), std::move(request),
                                               std::move(responder));
  {
    MutexLock lock(mutex_);
    calls_.insert(call);
  }
  call->Begin(stub_, *input, trace);
  return absl::OkStatus();
}

void RestCalls::Remove(const std::shared_ptr<RestCall>& call) {
  MutexLock lock(mutex_);
  calls_.erase(call);
  removed_.SignalAll();
}

RestCall::RestCall(RestCalls& calls, std::shared_ptr<const RestBinding> binding,
                   HttpRequest request, std::shared_ptr<HttpResponder> responder)
    : calls_(calls),
      binding_(std::move(binding)),
      responder_(std::move(responder)),
      client_(std::move(request.client)),
      message_(google::protobuf::MessageFactory::generated_factory()
                   ->GetPrototype(binding_->method->output_type())
                   ->New()),
      streaming_(binding_->method->server_streaming()),
      events_(request.Accepts("text/event-stream")),
      method_path_(absl::StrFormat("/%s/%s", binding_->method->service()->full_name(),
                                   binding_->method->name())) {}

void RestCall::Begin(grpc::GenericStub& stub, const RestInput& input, const RequestTrace& trace) {
  request_ = Serialize(*input.message);
  const auto context = std::make_shared<grpc::ClientContext>();
  if (input.deadline != absl::InfiniteFuture()) {
    context->set_deadline(absl::ToChronoTime(input.deadline));
  }
  context->AddMetadata(kApiMetadata, kRestApi);
  AddTenant(*client_, *context);
  AddTrace(trace, *context);
  {
    MutexLock lock(mutex_);
    context_ = context;
  }
  if (streaming_) {
    HttpStreamStart start;
    start.content_type = RestStreamType(events_);
    start.keep_alive = RestKeepAlive(events_);
    responder_->BeginStream(std::move(start));
  }
  stub.PrepareBidiStreamingCall(context.get(), method_path_, {}, this);
  AddHold();  // reads begin outside of reactions too
  StartWriteLast(&request_, grpc::WriteOptions());
  StartRead(&response_);
  // The client may be gone already; a call cancelled before it starts ends soon after.
  const std::shared_ptr<RestCall> self = shared_from_this();
  responder_->SetCallbacks([self] { self->ReadNext(); }, [self] { self->Abandon(); });
  StartCall();
}

void RestCall::Cancel() {
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(mutex_);
    context = context_;
  }
  if (context != nullptr) context->TryCancel();
}

void RestCall::OnReadDone(bool ok) {
  {
    MutexLock lock(mutex_);
    reading_ = false;
    ended_ = !ok;
  }
  if (!ok) return RemoveHold();
  if (broken_.ok()) broken_ = TakeMessage();
  if (!broken_.ok()) Cancel();
  // Of a stream that goes on, the callbacks read the next.
  if (!streaming_ || !broken_.ok()) ReadNext();
}

void RestCall::ReadNext() {
  {
    MutexLock lock(mutex_);
    if (reading_ || ended_) return;
    reading_ = true;
  }
  response_.Clear();
  StartRead(&response_);
}

absl::Status RestCall::TakeMessage() {
  grpc::ProtoBufferReader reader(&response_);
  if (!message_->ParseFromZeroCopyStream(&reader)) {
    return absl::InternalError(absl::StrFormat("%s: malformed response", method_path_));
  }
  const v1::Usage usage = UsageOf(*message_);
  if (usage.prompt_tokens() + usage.completion_tokens() > 0) {
    client_->ChargeTokens(usage.prompt_tokens(), usage.completion_tokens());
  }
  TANDEM_ASSIGN_OR_RETURN(std::string json, PrintResponse(*binding_, *message_));
  if (!streaming_) {
    body_ = std::move(json);
    return absl::OkStatus();
  }
  std::string out;
  AppendRestMessage(json, events_, out);
  if (!responder_->Write(std::move(out))) return absl::CancelledError("the client has gone");
  return absl::OkStatus();
}

void RestCall::Abandon() {
  Cancel();
  ReadNext();
}

void RestCall::OnDone(const grpc::Status& status) {
  absl::Status end = broken_.ok() ? FromDetailedGrpcStatus(status) : broken_;
  if (end.ok() && !streaming_ && !body_.has_value()) {
    end = absl::InternalError(absl::StrFormat("%s: no response", method_path_));
  }
  if (end.ok() && !streaming_) {
    responder_->Send({.body = *std::move(body_)});
  } else if (end.ok()) {
    responder_->End();
  } else if (!responder_->SendStatus(end)) {
    EndStream(end);
  }
  {
    MutexLock lock(mutex_);
    context_ = nullptr;
  }
  const std::shared_ptr<RestCall> self = shared_from_this();
  calls_.Remove(self);
}

// Too late for an HTTP status.
void RestCall::EndStream(const absl::Status& status) {
  std::string out;
  AppendRestError(status, events_, out);
  responder_->Write(std::move(out));
  responder_->End();
}

}  // namespace tandem::gateway
