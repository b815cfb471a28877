// How the gateway's replicas are started.
#pragma once

#include "absl/status/statusor.h"
#include "services/gateway/auto_prompts.h"
#include "services/gateway/gateway_flags.h"
#include "services/gateway/replicas/replicas.h"

namespace tandem::gateway {

// The replicas that the flags ask for; with --replica-file, those that the file has now.  With
// flags.auto_prompts another may come and go: by `set_extra`.
// INVALID_ARGUMENT as FinishGatewayFlags, for workers that only the file names.
// REQUIRES FinishGatewayFlags.
absl::StatusOr<ReplicaStarts> MakeReplicas(const GatewayFlags& flags,
                                           const SetExtraReplica& set_extra = nullptr);

}  // namespace tandem::gateway
