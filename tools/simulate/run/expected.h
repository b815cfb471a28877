// What a request must be answered, whatever happens to the cluster.
#pragma once

#include <cstdint>
#include <vector>

#include "services/gateway/engine/request_run.h"

namespace tandem::simulate {

// The tokens of the answer, computed without steps, blocks or workers.
std::vector<uint32_t> ExpectedTokens(const gateway::EngineRequest& request);
// Of a request for an embedding.
std::vector<float> ExpectedEmbedding(const gateway::EngineRequest& request);

}  // namespace tandem::simulate
