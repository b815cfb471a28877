// A weight region as the loader keeps it: sealed, with the descriptors that clients get.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"
#include "services/loader/packing/packer.h"

namespace tandem::loader {

struct SealedRegion {
  UniqueFd fd;         // opened read-only
  UniqueFd dmabuf_fd;  // invalid where the kernel has no /dev/udmabuf or refuses this size
  uint64_t bytes = 0;
};

// Seals a packed region for good: against resizing and, where the kernel can (5.1 and later),
// against any new writable mapping; exports its pages as a dmabuf where it can.  The
// read-write descriptor is closed.
absl::StatusOr<SealedRegion> SealRegion(PackedRegion region);

}  // namespace tandem::loader
