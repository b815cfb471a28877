// Converts kept traces to messages of the public API.
#pragma once

#include <vector>

#include "services/gateway/trace/trace_ring.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// REQUIRES `traces` of one request, not empty.
void FillTrace(const std::vector<KeptTrace>& traces, v1::GetTraceResponse& response);

}  // namespace tandem::gateway
