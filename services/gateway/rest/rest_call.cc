#include "services/gateway/rest/rest_call.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/model/client_status.h"
#include "services/gateway/rest/rest_format.h"

namespace tandem::gateway {
namespace {

constexpr size_t kUsualMessageBytes = 256;  // a token with its text

}  // namespace

RestCall::RestCall(std::shared_ptr<const RestBinding> binding, RestInput input,
                   const HttpRequest& http, std::shared_ptr<HttpResponder> responder)
    : RpcCall({.api = Api::kRest,
               .client = http.client,
               .trace = http.trace,
               .deadline = input.deadline}),
      binding_(std::move(binding)),
      responder_(std::move(responder)),
      request_(std::move(input.message)),
      response_(google::protobuf::MessageFactory::generated_factory()
                    ->GetPrototype(binding_->method->output_type())
                    ->New()),
      streaming_(binding_->method->server_streaming()),
      events_(http.Accepts("text/event-stream")) {
  if (!streaming_) return;
  responder_->BeginStream({.content_type = RestStreamType(events_),
                           .headers = {{"Cache-Control", "no-store"}},
                           .keep_alive = RestKeepAlive(events_)});
}

void RestCall::SetCallbacks(std::function<void(bool ok)> on_written,
                            std::function<void()> on_gone) {
  // The responder destroys both when the answer is complete or the client has gone.
  responder_->SetCallbacks(
      [self = shared_from_this(), on_written] {
        if (self->writing_.exchange(false)) on_written(true);
      },
      [self = shared_from_this(), on_written, on_gone = std::move(on_gone)] {
        on_gone();
        if (self->writing_.exchange(false)) on_written(false);
      });
}

absl::Status RestCall::AppendMessage(std::string& out) const {
  out += RestMessageBegin(events_);
  TANDEM_RETURN_IF_ERROR(AppendResponse(*binding_, *response_, out));
  out += RestMessageEnd(events_);
  return absl::OkStatus();
}

bool RestCall::Write() {
  std::string out;
  out.reserve(kUsualMessageBytes);
  broken_ = AppendMessage(out);
  if (!broken_.ok()) return false;
  writing_ = true;
  if (responder_->Write(out)) return true;  // the next message may be under way by now
  // Unless the callback for a client that has gone has called on_written already.
  return !writing_.exchange(false);
}

void RestCall::Finish(absl::Status status) {
  if (streaming_) return FinishStream(std::move(status));
  // As gRPC ends a call after its deadline.
  if (status.ok() || absl::IsCancelled(status)) {
    if (absl::Now() >= caller().deadline) status = absl::DeadlineExceededError("Deadline Exceeded");
  }
  if (status.ok()) {
    HttpResponse http;
    status = AppendResponse(*binding_, *response_, http.body);
    if (status.ok()) {
      responder_->Send(std::move(http));
      return;
    }
  }
  responder_->SendStatus(ToClientError(status));
}

void RestCall::FinishStream(absl::Status status) {
  if (!broken_.ok()) status = broken_;
  std::string out;
  if (status.ok()) status = AppendMessage(out);
  if (!status.ok()) {
    out.clear();
    const absl::Status said = ToClientError(status);
    if (responder_->SendStatus(said)) return;
    AppendRestError(said, events_, out);  // too late for an HTTP status
  }
  responder_->Write(out);
  responder_->End();
}

}  // namespace tandem::gateway
