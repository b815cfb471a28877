// Whether a unix socket can be believed: who could put one there, and who listens on it.
//
// A path says nothing about who is behind it.  In a folder such as /tmp another user can make the
// socket, or the folder, that a program of ours looks for, and would get every prompt.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace tandem {

// Before serving.  FAILED_PRECONDITION: the folder that the socket at `path` is made in belongs to
// another user (root excepted), is reached by another user's link, or belongs to this user and may
// be written by others.  A folder of root's that others may write is logged and allowed: pods and
// containers share such ones, and /tmp is one.
absl::Status CheckSocketFolder(const std::string& path);

// Before speaking.  OK: nobody listens at `path`, or somebody who is trusted does.  Trusted are this
// user, root, `told`, and the owner of the socket's folder where root made it (its parent is root's
// alone, as /run is).  PERMISSION_DENIED names the user.
absl::Status CheckSocketPeer(const std::string& path, std::optional<uid_t> told = std::nullopt);
// The same of a target of CreateChannel: one that is no unix socket is not looked at.
absl::Status CheckTargetPeer(const std::string& target, std::optional<uid_t> told = std::nullopt);

}  // namespace tandem
