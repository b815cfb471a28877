#pragma once

#include <cstdint>

#include "tandem/v1/generation.pb.h"

namespace tandem::gateway::testing {

// Requests that run or wait, by one reading of the status: between two they move.
inline uint32_t Unfinished(const v1::SchedulerStatus& scheduler) {
  return scheduler.running() + scheduler.waiting();
}

}  // namespace tandem::gateway::testing
