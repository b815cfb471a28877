// How much memory there is to put weights in.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace tandem::loader {

// Bytes that can be allocated without swapping: the kernel's estimate for the machine, or what the
// process's control group has left if that is less.  UINT64_MAX when neither can be read.
uint64_t AvailableMemoryBytes();

// RESOURCE_EXHAUSTED, with both amounts, unless `bytes` and a reserve for the rest of the machine
// (1/32 of `bytes`, 64 MiB at least) are available.
absl::Status CheckMemoryBudget(uint64_t bytes);

}  // namespace tandem::loader
