// The message and the deadline in an HTTP request.
#pragma once

#include <google/protobuf/message.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/rest/rest_binding.h"

namespace tandem::gateway {

struct RestInput {
  std::unique_ptr<google::protobuf::Message> message;
  absl::Time deadline = absl::InfiniteFuture();
};

// The message of BuildRequest, and the deadline of Grpc-Timeout.  An empty field `request_id` is
// set to the HTTP request's id.  INVALID_ARGUMENT names the wrong field or header.
absl::StatusOr<RestInput> ReadRestInput(const RestBinding& binding, const HttpRequest& request);

}  // namespace tandem::gateway
