// What an HTTP request asks of a gRPC method.
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

// The message of BuildRequest, its field `request_id`, where there is one and it is empty, being
// the HTTP request's id; and the deadline that Grpc-Timeout sets.  INVALID_ARGUMENT names what is
// wrong.
absl::StatusOr<RestInput> ReadRestInput(const RestBinding& binding, const HttpRequest& request);

}  // namespace tandem::gateway
