#include "services/common/base/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

constexpr rlim_t kMostDescriptors = 65536;
constexpr uint64_t kFewestConnections = 16;
constexpr uint64_t kMostConnections = 4096;

}  // namespace

absl::StatusOr<uint64_t> RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return absl::InternalError(absl::StrFormat("getrlimit: %s", std::strerror(errno)));
  }
  const rlim_t wanted = std::min(limit.rlim_max, kMostDescriptors);
  if (limit.rlim_cur >= wanted) return limit.rlim_cur;
  limit.rlim_cur = wanted;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return absl::InternalError(absl::StrFormat("cannot raise the limit of open files to %d: %s",
                                               wanted, std::strerror(errno)));
  }
  return wanted;
}

absl::StatusOr<uint32_t> ConnectionsWithin(uint64_t descriptors, uint32_t asked) {
  const uint64_t most =
      descriptors <= kReservedDescriptors ? 0 : (descriptors - kReservedDescriptors) / 2;
  if (most < kFewestConnections) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the limit of open files is %d and serving needs at least %d: raise the hard limit "
        "(ulimit -Hn, or LimitNOFILE= of the systemd unit)",
        descriptors, kReservedDescriptors + 2 * kFewestConnections));
  }
  if (asked == 0) return static_cast<uint32_t>(std::min(most, kMostConnections));
  if (asked > most) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--http-connections %d: the limit of %d open files has room for at most %d; ask for fewer, "
        "or raise the hard limit (ulimit -Hn, or LimitNOFILE= of the systemd unit)",
        asked, descriptors, most));
  }
  return asked;
}

}  // namespace tandem
