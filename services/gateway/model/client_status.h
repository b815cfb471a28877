// The error that a client gets.
#pragma once

#include "services/common/base/client_text.h"
#include "services/common/rpc/error_details.h"

namespace tandem::gateway {

// How long a client should wait before it asks again when the queue was full or a worker away.
inline constexpr absl::Duration kRetryDelay = absl::Seconds(1);

// With google.rpc.RetryInfo where trying again is worth while: RESOURCE_EXHAUSTED and UNAVAILABLE.
inline absl::Status ToClientError(const absl::Status& said) {
  const absl::Status status = ForClients(said);
  const bool passing = absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
  if (!passing || RetryAfterOf(status).has_value()) return status;
  return WithRetryAfter(status, kRetryDelay);
}
inline grpc::Status ToClientStatus(const absl::Status& status) {
  return ToDetailedGrpcStatus(ToClientError(status));
}

}  // namespace tandem::gateway
