#include "services/common/base/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

constexpr rlim_t kMostDescriptors = 65536;
constexpr uint64_t kFewestConnections = 16;
constexpr uint64_t kMostConnections = 4096;
constexpr uint64_t kDescriptorsPerGrpc = 3;
constexpr uint64_t kMostGrpcConnections = 512;

// Descriptors for one port's connections.
absl::StatusOr<uint64_t> HalfOf(uint64_t descriptors) {
  const uint64_t most =
      descriptors <= kReservedDescriptors ? 0 : (descriptors - kReservedDescriptors) / 2;
  if (most >= kFewestConnections) return most;
  return absl::InvalidArgumentError(absl::StrFormat(
      "the limit of open files is %d and serving needs at least %d: raise the hard limit "
      "(ulimit -Hn, or LimitNOFILE= of the systemd unit)",
      descriptors, kReservedDescriptors + 2 * kFewestConnections));
}

absl::StatusOr<uint32_t> Asked(uint64_t descriptors, uint32_t asked, uint64_t most,
                               const char* flag) {
  if (asked <= most) return asked;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s %d: the limit of %d open files has room for at most %d; ask for fewer, "
                      "or raise the hard limit (ulimit -Hn, or LimitNOFILE= of the systemd unit)",
                      flag, asked, descriptors, most));
}

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
  TANDEM_ASSIGN_OR_RETURN(const uint64_t most, HalfOf(descriptors));
  if (asked == 0) return static_cast<uint32_t>(std::min(most, kMostConnections));
  return Asked(descriptors, asked, most, "--http-connections");
}

absl::StatusOr<uint32_t> GrpcConnectionsWithin(uint64_t descriptors, uint32_t asked) {
  TANDEM_ASSIGN_OR_RETURN(uint64_t most, HalfOf(descriptors));
  most /= kDescriptorsPerGrpc;
  if (asked == 0) return static_cast<uint32_t>(std::min(most, kMostGrpcConnections));
  return Asked(descriptors, asked, most, "--grpc-connections");
}

}  // namespace tandem
