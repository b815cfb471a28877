// Calls of the public API over HTTP.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "services/gateway/handlers/rpc_call.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/rest/rest_binding.h"
#include "services/gateway/rest/rest_input.h"

namespace tandem::gateway {

// Sends each message as JSON.  on_written is called when the kernel has taken the message, so a
// slow client delays only its own call.
class RestCall final : public RpcCall, public std::enable_shared_from_this<RestCall> {
 public:
  // `input`: read from `http`.
  RestCall(std::shared_ptr<const RestBinding> binding, RestInput input, const HttpRequest& http,
           std::shared_ptr<HttpResponder> responder);

  void SetCallbacks(std::function<void(bool ok)> on_written,
                    std::function<void()> on_gone) override;
  bool gone() const override { return responder_->gone(); }
  bool Write() override;
  void Finish(absl::Status status) override;
  void ReleaseRequest() override { request_.reset(); }

 private:
  const google::protobuf::Message& request_message() const override { return *request_; }
  google::protobuf::Message& response_message() override { return *response_; }
  // Appends the response as a line or an event.
  absl::Status AppendMessage(std::string& out) const;
  void FinishStream(absl::Status status);

  const std::shared_ptr<const RestBinding> binding_;    // shared with the route
  const std::shared_ptr<HttpResponder> responder_;      // shared with the server
  std::unique_ptr<google::protobuf::Message> request_;  // null after ReleaseRequest
  const std::unique_ptr<google::protobuf::Message> response_;
  const bool streaming_;
  const bool events_;
  absl::Status broken_;                // why a message has no JSON form
  std::atomic<bool> writing_ = false;  // on_written must still be called
};

}  // namespace tandem::gateway
