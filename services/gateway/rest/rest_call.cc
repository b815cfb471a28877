#include "services/gateway/rest/rest_call.h"

#include <grpcpp/support/proto_buffer_reader.h>

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

// Tokens that a response says its request has used.
uint64_t TokensUsed(const Message& response) {
  const FieldDescriptor* field = response.GetDescriptor()->FindFieldByName("usage");
  if (field == nullptr || field->message_type() != v1::Usage::descriptor() ||
      !response.GetReflection()->HasField(response, field)) {
    return 0;
  }
  const auto& usage =
      dynamic_cast<const v1::Usage&>(response.GetReflection()->GetMessage(response, field));
  return uint64_t{usage.prompt_tokens()} + usage.completion_tokens();
}

}  // namespace

absl::Status RestCall::Start(grpc::GenericStub& stub, const RestBinding& binding,
                             HttpRequest request, std::shared_ptr<HttpResponder> responder) {
  const auto input = ReadRestInput(binding, request);
  if (!input.ok()) {
    responder->SendStatus(input.status());
    return input.status();
  }
  const RequestTrace trace = request.trace;
  std::shared_ptr<RestCall> call(new RestCall(binding, std::move(request), std::move(responder)));
  if (input->deadline != absl::InfiniteFuture()) {
    call->context_.set_deadline(absl::ToChronoTime(input->deadline));
  }
  call->context_.AddMetadata(kApiMetadata, kRestApi);
  AddTrace(trace, call->context_);
  call->self_ = call;
  call->Begin(stub, *input->message);
  return absl::OkStatus();
}

RestCall::RestCall(const RestBinding& binding, HttpRequest request,
                   std::shared_ptr<HttpResponder> responder)
    : binding_(binding),
      responder_(std::move(responder)),
      client_(std::move(request.client)),
      message_(google::protobuf::MessageFactory::generated_factory()
                   ->GetPrototype(binding.method->output_type())
                   ->New()),
      streaming_(binding.method->server_streaming()),
      events_(request.Accepts("text/event-stream")),
      method_path_(absl::StrFormat("/%s/%s", binding.method->service()->full_name(),
                                   binding.method->name())) {}

void RestCall::Begin(grpc::GenericStub& stub, const Message& request) {
  request_ = Serialize(request);
  if (streaming_) {
    HttpStreamStart start;
    start.content_type = RestStreamType(events_);
    start.keep_alive = RestKeepAlive(events_);
    responder_->BeginStream(std::move(start));
  }
  stub.PrepareBidiStreamingCall(&context_, method_path_, {}, this);
  AddHold();  // reads begin outside of reactions too
  StartWriteLast(&request_, grpc::WriteOptions());
  StartRead(&response_);
  // The client may be gone already; a call cancelled before it starts ends soon after.
  const std::shared_ptr<RestCall> self = self_;
  responder_->SetCallbacks([self] { self->ReadNext(); }, [self] { self->OnGone(); });
  StartCall();
}

void RestCall::OnReadDone(bool ok) {
  {
    MutexLock lock(mutex_);
    reading_ = false;
    ended_ = !ok;
  }
  if (!ok) return RemoveHold();
  if (broken_.ok()) broken_ = TakeMessage();
  if (!broken_.ok()) context_.TryCancel();
  // Of a stream that goes on, OnDrained or OnGone reads the next.
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
  if (const uint64_t tokens = TokensUsed(*message_)) client_->ChargeTokens(tokens);
  TANDEM_ASSIGN_OR_RETURN(std::string json, PrintResponse(binding_, *message_));
  if (!streaming_) {
    body_ = std::move(json);
    return absl::OkStatus();
  }
  std::string out;
  AppendRestMessage(json, events_, out);
  if (!responder_->Write(std::move(out))) return absl::CancelledError("the client has gone");
  return absl::OkStatus();
}

void RestCall::OnGone() {
  context_.TryCancel();
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
  const std::shared_ptr<RestCall> self = std::move(self_);
}

// Too late for an HTTP status.
void RestCall::EndStream(const absl::Status& status) {
  std::string out;
  AppendRestError(status, events_, out);
  responder_->Write(std::move(out));
  responder_->End();
}

}  // namespace tandem::gateway
