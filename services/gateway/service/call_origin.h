// By which API a gRPC call was asked for.
#pragma once

#include <grpcpp/server_context.h>

#include "services/gateway/engine/request_run.h"

namespace tandem::gateway {

// Metadata that the HTTP edge's own calls carry.  A client that sends it is counted among REST's;
// nothing else depends on it.
inline constexpr char kApiMetadata[] = "tandem-api";
inline constexpr char kRestApi[] = "rest";

inline Api OriginOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kApiMetadata);
  return found != context.client_metadata().end() && found->second == kRestApi ? Api::kRest
                                                                               : Api::kGrpc;
}

}  // namespace tandem::gateway
