// Checks the health of a gRPC server by the standard protocol (grpc.health.v1).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem {

// OK when the server at `target` ("unix:/path", "host:port") says within `timeout` that `service`
// serves; an empty name asks for the server as a whole.  UNAVAILABLE: it does not serve, or
// does not answer; NOT_FOUND: it has no such service; DEADLINE_EXCEEDED.
absl::Status CheckHealth(const std::string& target, const std::string& service,
                         absl::Duration timeout);

}  // namespace tandem
