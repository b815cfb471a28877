// Error details across gRPC: an absl::Status' payloads are the details of its google.rpc.Status,
// which gRPC carries in the trailing metadata `grpc-status-details-bin`.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/rpc/status.pb.h"

namespace tandem {

// Says when it is worth while to try again (google.rpc.RetryInfo).
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

// Code, message and payloads, as gRPC's guide to errors lays them out.
google::rpc::Status ToRpcStatus(const absl::Status& status);

// ToGrpcStatus and FromGrpcStatus, details included.  The message becomes bounded, visible ASCII
// (base/client_text.h).
grpc::Status ToDetailedGrpcStatus(const absl::Status& status);
absl::Status FromDetailedGrpcStatus(const grpc::Status& status);

}  // namespace tandem
