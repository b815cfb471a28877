// How many file descriptors this process may have open, and how many of them clients may take.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace tandem {

// Descriptors that no client's connection takes: sockets to workers and the loader, memory regions,
// files, logs, and what gRPC opens for itself.  A gateway that serves has some 25 open.
inline constexpr uint64_t kReservedDescriptors = 128;

// Raises the soft limit of open files (RLIMIT_NOFILE) to the hard one, to at most 65,536, and
// returns the limit from now on.  INTERNAL where the system refuses.
absl::StatusOr<uint64_t> RaiseDescriptorLimit();

// Connections that a server may hold at a time under a limit of `descriptors`: half of the rest
// beside the reserve, since the other port may take the other half.  `asked` 0: that many, at most
// 4,096.  INVALID_ARGUMENT where `asked` is more than that many, or `descriptors` are too few to
// serve with.
absl::StatusOr<uint32_t> ConnectionsWithin(uint64_t descriptors, uint32_t asked);

// The same for gRPC's port, whose connections take three descriptors each (rpc/edge); at most 512
// where `asked` is 0.
absl::StatusOr<uint32_t> GrpcConnectionsWithin(uint64_t descriptors, uint32_t asked);

}  // namespace tandem
