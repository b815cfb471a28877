// The caller of a gRPC call, and its trace.
#pragma once

#include <grpcpp/server_context.h>

#include "services/common/trace/trace_context.h"
#include "services/gateway/handlers/rpc_call.h"

namespace tandem::gateway {

inline constexpr char kTraceParent[] = "traceparent";
inline constexpr char kTraceState[] = "tracestate";
inline constexpr char kRequestId[] = "x-request-id";  // in the answer

// The tenant follows from the connection (GrpcPeerTenant).  `sampler` starts a trace if the
// metadata have none.
RpcCaller CallerOf(const grpc::CallbackServerContext& context, const TraceSampler& sampler);

}  // namespace tandem::gateway
