// How a gRPC method is reached over HTTP, read from its google.api.http annotation.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/http/path_template.h"

namespace tandem::gateway {

// One HTTP method and path template of a gRPC method.
struct RestBinding {
  const google::protobuf::MethodDescriptor* method = nullptr;  // Borrowed from its pool
  std::string http_method;                                     // "POST"
  std::string path_template;
  PathTemplate path;
  std::string body;           // "*", a field's name, or empty: no body
  std::string response_body;  // a field's name, or empty: the whole response
};

// The bindings of `method`, the additional ones after the first; none without an annotation.
// INVALID_ARGUMENT names the method: a template or field that is wrong, a method whose requests are
// a stream.
absl::StatusOr<std::vector<RestBinding>> ReadBindings(
    const google::protobuf::MethodDescriptor& method);

// The request message of an HTTP request that matched `binding`: fields from the path, the body and
// the query.  INVALID_ARGUMENT names the field or parameter.
absl::StatusOr<std::unique_ptr<google::protobuf::Message>> BuildRequest(const RestBinding& binding,
                                                                        const HttpRequest& request);

// The response, or its response_body field, as JSON.
absl::StatusOr<std::string> PrintResponse(const RestBinding& binding,
                                          const google::protobuf::Message& response);

}  // namespace tandem::gateway
