// The memory that a plan takes of its device, before it is loaded.
#pragma once

#include <cstdint>

#include "services/common/plan/planner.h"
#include "services/common/worker/worker.h"

namespace tandem {

// Bytes of the KV cache, and of the weights where they count: on a GPU, also one that shares the
// host's memory, for its driver has a limit of its own.  Elsewhere they lie in memory that the
// loader has taken already.  Activations are not counted.
uint64_t PlanMemoryBytes(const ModelLoad& load, const WorkerDescription& worker);

// What a loaded plan takes beyond that: an NPU's own copy of its weights, in a format of its own.
uint64_t CopiedWeightBytes(const LoadReport& loaded, const WorkerDescription& worker);

}  // namespace tandem
