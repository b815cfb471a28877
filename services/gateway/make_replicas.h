// How the gateway's replicas are started.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/gateway_flags.h"
#include "services/gateway/replica_workers.h"
#include "services/gateway/replicas/replicas.h"

namespace tandem::gateway {

// The replicas that the flags ask for; with --replica-file, those that the file has now.
// INVALID_ARGUMENT as FinishGatewayFlags, for workers that only the file names.
// REQUIRES FinishGatewayFlags.
absl::StatusOr<std::vector<ReplicaStart>> MakeReplicas(const GatewayFlags& flags);

}  // namespace tandem::gateway
