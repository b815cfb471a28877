// The drafters of a gateway, by its flags.
#pragma once

#include "absl/status/statusor.h"
#include "services/common/plan/drafters.h"
#include "services/gateway/draft/draft_options.h"
#include "services/gateway/engine/engine.h"

namespace tandem::gateway {

// For EngineOptions::make_drafters; null if `drafters` is empty.  `model`: how the model itself
// runs.  INVALID_ARGUMENT as DraftExecutorOptions.
absl::StatusOr<MakeDrafters> DraftersFor(const DrafterSet& drafters, const DraftModelPlace& place,
                                         const ExecutorOptions& model);

}  // namespace tandem::gateway
