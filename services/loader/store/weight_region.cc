#include "services/loader/store/weight_region.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/status_macros.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace tandem::loader {
namespace {

// The region's pages as a dmabuf.  REQUIRES sealed against shrinking, and not yet against writing:
// udmabuf wants the one and refuses the other.
UniqueFd ExportDmabuf(int fd, uint64_t bytes) {
  const UniqueFd device(::open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
  if (!device.valid()) return UniqueFd();
  udmabuf_create request{};
  request.memfd = static_cast<uint32_t>(fd);
  request.flags = UDMABUF_FLAGS_CLOEXEC;
  request.size = bytes;
  UniqueFd dmabuf(::ioctl(device.get(), UDMABUF_CREATE, &request));
  if (!dmabuf.valid()) {
    LogWarning("region not exported as a dmabuf",
               {{"bytes", bytes},
                {"reason", std::strerror(errno)},
                {"remedy",
                 "raise udmabuf's size_limit_mb as tandem doctor says, or lower "
                 "--max-region-bytes to it"}});
  }
  return dmabuf;
}

absl::Status AddSeals(int fd, int seals) {
  if (::fcntl(fd, F_ADD_SEALS, seals) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("sealing a weight region: %s", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<SealedRegion> SealRegion(PackedRegion region) {
  const int fd = region.fd.get();
  TANDEM_RETURN_IF_ERROR(AddSeals(fd, F_SEAL_SHRINK | F_SEAL_GROW));
  SealedRegion sealed;
  sealed.bytes = region.bytes;
  sealed.dmabuf_fd = ExportDmabuf(fd, region.bytes);
  if (!AddSeals(fd, F_SEAL_FUTURE_WRITE).ok()) {
    LogWarning("kernel too old to seal weights against writing; only descriptors are read-only");
  }
  TANDEM_RETURN_IF_ERROR(AddSeals(fd, F_SEAL_SEAL));
  TANDEM_ASSIGN_OR_RETURN(sealed.fd, ReopenReadOnly(fd));
  return sealed;
}

}  // namespace tandem::loader
