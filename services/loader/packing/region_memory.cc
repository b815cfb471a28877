#include "services/loader/packing/region_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::loader {

absl::StatusOr<RegionMemory> MakeRegionMemory(uint64_t bytes) {
  RegionMemory memory;
  TANDEM_ASSIGN_OR_RETURN(memory.fd, CreateSharedMemory("tandem-weights", bytes));
  TANDEM_ASSIGN_OR_RETURN(memory.mapping,
                          Mapping::Map(memory.fd.get(), bytes, Mapping::Access::kReadWrite));
  ::madvise(memory.mapping.data(), bytes, MADV_HUGEPAGE);  // kernels without it lose nothing
  return memory;
}

absl::Status Populate(std::byte* data, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (::madvise(data, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("no memory for weights: %s", std::strerror(errno)));
  }
#endif
  return absl::OkStatus();
}

}  // namespace tandem::loader
