// Whether to trust a unix socket: which users can create it, and which user listens on it.
//
// A path does not say which user is behind it.  In a folder such as /tmp another user can create
// the socket, or the folder, that a program of ours looks for, and would get every prompt.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace tandem {

// Call before serving.  FAILED_PRECONDITION: the folder of the socket at `path` belongs to another
// user (root excepted), is reached by another user's link, or other users may write it.  Two kinds
// that others may write are logged and allowed: a folder of root's with the sticky bit, such as
// /tmp, where nobody can remove another user's socket, and one of root's that is a mount point, such
// as a pod's volume.  In both, whoever connects still checks who listens (CheckSocketPeer).
absl::Status CheckSocketFolder(const std::string& path);

// Call before connecting.  OK: no process listens at `path`, or one of a trusted user.  Trusted are
// this user, root, `trusted`, and the owner of the socket's folder if root created it (its parent
// is root's alone, as /run is).  PERMISSION_DENIED names the user.
absl::Status CheckSocketPeer(const std::string& path, std::optional<uid_t> trusted = std::nullopt);
// The same for a target of CreateChannel.  OK for targets other than unix sockets.
absl::Status CheckTargetPeer(const std::string& target,
                             std::optional<uid_t> trusted = std::nullopt);

}  // namespace tandem
