// The HTTP routes of a gRPC method, from its google.api.http annotation.
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

// The bindings of `method`: first the annotation itself, then its additional bindings.  Empty
// without an annotation.  INVALID_ARGUMENT names the method: a wrong template or field, or a stream
// of requests.
absl::StatusOr<std::vector<RestBinding>> ReadBindings(
    const google::protobuf::MethodDescriptor& method);

// The message of an HTTP request that matched `binding`, with fields from the path, the body and
// the query.  INVALID_ARGUMENT names the field or parameter.
absl::StatusOr<std::unique_ptr<google::protobuf::Message>> BuildRequest(const RestBinding& binding,
                                                                        const HttpRequest& request);

// Appends the response, or its response_body field, as JSON.  Errors as AppendMessageJson.
absl::Status AppendResponse(const RestBinding& binding, const google::protobuf::Message& response,
                            std::string& out);

}  // namespace tandem::gateway
