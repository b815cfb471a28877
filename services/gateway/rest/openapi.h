// An OpenAPI 3.1 document of the REST routes, from the protos' descriptors and annotations.
#pragma once

#include <google/protobuf/descriptor.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/gateway/http/http_router.h"

namespace tandem::gateway {

// Paths, operations and schemas of each annotated method of `service`.  A variable of several
// segments ({model=**}) becomes an ordinary parameter, because OpenAPI has no other.
// INVALID_ARGUMENT names a method whose annotation is wrong.
absl::StatusOr<nlohmann::ordered_json> BuildOpenApi(
    const google::protobuf::ServiceDescriptor& service, const std::string& version);

// Adds GET /openapi.json.  Errors as BuildOpenApi and HttpRouter::Add.
absl::Status AddOpenApiRoute(HttpRouter& router, const google::protobuf::ServiceDescriptor& service,
                             const std::string& version);

}  // namespace tandem::gateway
