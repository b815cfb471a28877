// HTTP routes for every method with a google.api.http annotation.
#pragma once

#include <google/protobuf/descriptor.h>

#include "absl/status/status.h"
#include "services/gateway/handlers/rpc_call.h"
#include "services/gateway/http/http_router.h"

namespace tandem::gateway {

// Adds the routes of each annotated method of `service`, whose message types are linked in.
// `methods` answer them, as they answer gRPC.
//
//   - A response is its message as JSON (proto3's mapping, lowerCamelCase).
//   - A stream has one JSON object a line (application/x-ndjson), or one event for each if the
//     client accepts text/event-stream.
//   - An error is a google.rpc.Status with the HTTP code of its gRPC code.  After the first message
//     of a stream it is the last line, {"error": STATUS}, or an event named "error".
//   - An empty field `request_id` of the request is set to the HTTP request's id.
//   - Grpc-Timeout ("10S", "500m") sets a deadline.
//
// INVALID_ARGUMENT names a method whose annotation is wrong, or which `methods` lacks.
// ALREADY_EXISTS: two methods have the same route.
absl::Status AddRestRoutes(HttpRouter& router, const google::protobuf::ServiceDescriptor& service,
                           const RpcMethods& methods);

}  // namespace tandem::gateway
