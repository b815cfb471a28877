// The bodies of GET /props and /slots.
#pragma once

#include <string>

#include "services/gateway/api/json.h"
#include "services/gateway/model/served_model.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

Json LlamaCppProps(const ServedModel& model, const v1::SchedulerStatus& scheduler,
                   const std::string& version);

// The scheduler has places, not numbered slots: the first `running` entries are those taken.
Json LlamaCppSlots(const ServedModel& model, const v1::SchedulerStatus& scheduler);
// Whether a request would start at once.
bool HasFreeSlot(const v1::SchedulerStatus& scheduler);

}  // namespace tandem::gateway
