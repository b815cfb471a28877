// Unix socket addresses: what the gRPC server and the descriptor socket both need.
#pragma once

#include <sys/un.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// The path of a "unix:/path" or "unix:///path" target; nothing for other targets.
std::optional<std::string> UnixSocketPath(const std::string& target);

// INVALID_ARGUMENT when the path is empty, holds a NUL or is too long for a socket address.
absl::StatusOr<sockaddr_un> UnixSocketAddress(const std::string& path);

// Whether a server listens on the socket at `path` now.
bool SocketAnswers(const std::string& path);

// Removes the socket file of a server that is gone.  OK when nothing is there.  ALREADY_EXISTS
// when a server answers on it, FAILED_PRECONDITION when the path holds something else than a
// socket, or its directory is missing.
absl::Status RemoveStaleSocket(const std::string& path);

}  // namespace tandem
