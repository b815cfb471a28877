// Shared memory that is to become a weight region.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/unique_fd.h"

namespace tandem::loader {

struct RegionMemory {
  UniqueFd fd;
  Mapping mapping;  // read-write
};

// A memfd of `bytes`, mapped, in huge pages where the kernel gives them.  Its pages are not made
// yet.
absl::StatusOr<RegionMemory> MakeRegionMemory(uint64_t bytes);

// Makes the pages of [data, +bytes) now, so that lack of memory is an error (RESOURCE_EXHAUSTED)
// and not a fault later.  Kernels before 5.14 cannot; there the check of the budget has to do.
// Thread-safe, and faster on many threads.
absl::Status Populate(std::byte* data, uint64_t bytes);

}  // namespace tandem::loader
