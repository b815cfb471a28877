// REST by transcoding: every gRPC method with a google.api.http annotation as HTTP routes.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/channel.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/rest/rest_stream.h"

namespace tandem::gateway {

// Adds the routes of each annotated method of `service`, a generated one.  They call it through
// `channel`.
//
//   A response is its message as JSON (proto3's mapping, lowerCamelCase).  A stream is one JSON
//   object a line (application/x-ndjson), or, if the client accepts text/event-stream, one event
//   each. Errors are google.rpc.Status with the HTTP code of its gRPC code; after the first message
//   of a stream they are its last line, {"error": STATUS}, or an event named "error". The request's
//   field `request_id`, where there is one and it is empty, is the HTTP request's id; Grpc-Timeout
//   ("10S", "500m") sets a deadline.
//
// Methods in `streams` are not called; their entry answers.
// INVALID_ARGUMENT names a method whose annotation is wrong; ALREADY_EXISTS: a route.
// `on_refused` is called, on threads of the server, for requests that are refused before a call.
using RestRefused = std::function<void(const google::protobuf::MethodDescriptor& method,
                                       const absl::Status& status)>;
absl::Status AddRestRoutes(HttpRouter& router, const google::protobuf::ServiceDescriptor& service,
                           std::shared_ptr<grpc::Channel> channel, RestRefused on_refused = {},
                           const RestStreams& streams = {});

}  // namespace tandem::gateway
