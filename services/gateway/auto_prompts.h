// Whether an NPU computes prompts beside the GPU that decodes, under --npu auto.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "services/gateway/executor/executor.h"
#include "services/gateway/executor/prompts_apart.h"
#include "services/gateway/replicas/replicas.h"

namespace tandem::gateway {

// Takes the replica that there shall be besides the others from now on.  Called by engines' threads.
using SetExtraReplica = std::function<void(std::optional<ReplicaStart>)>;

// For ExecutorOptions::prompts_apart of the executor that decodes.  `prompts`: how the plan of the
// replica for prompts is loaded; `key`: that replica's.
std::shared_ptr<PromptsApart> MakePromptsApart(ExecutorOptions prompts, std::string key,
                                               SetExtraReplica set_extra);

}  // namespace tandem::gateway
