#include "services/common/rpc/socket_trust.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/unique_fd.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

bool IsOwn(uid_t owner) { return owner == ::geteuid() || owner == 0; }

fs::path FolderOf(const std::string& path) {
  std::error_code ignored;
  return fs::absolute(path, ignored).parent_path();
}

// A link of another user's on the way to `folder`, which that user can point elsewhere.
std::optional<std::string> ForeignLink(const fs::path& folder) {
  fs::path way;
  for (const fs::path& part : folder) {
    way /= part;
    struct stat info {};
    if (::lstat(way.c_str(), &info) != 0) return std::nullopt;
    if (S_ISLNK(info.st_mode) && !IsOwn(info.st_uid)) return way.string();
  }
  return std::nullopt;
}

// Whether only root decides which files are in `folder`.
bool IsRootsAlone(const fs::path& folder) {
  struct stat info {};
  return ::stat(folder.c_str(), &info) == 0 && info.st_uid == 0 &&
         (info.st_mode & kOthersWrite) == 0;
}

// Whether `folder` was mounted, such as a pod's volume: then an administrator has decided who
// reaches it.
bool IsMountPoint(const fs::path& folder) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (error) return false;
  // Of a line's fields the fifth is the mount point, with spaces and the like in octal.
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    if (fields.size() < 5) continue;
    std::string point;
    for (size_t i = 0; i < fields[4].size(); ++i) {
      const bool escaped = fields[4][i] == '\\' && i + 3 < fields[4].size();
      point += escaped ? static_cast<char>(std::stoi(fields[4].substr(i + 1, 3), nullptr, 8))
                       : fields[4][i];
      if (escaped) i += 3;
    }
    if (point == real.string()) return true;
  }
  return false;
}

bool Trusts(uid_t user, const fs::path& folder, uid_t folder_owner, std::optional<uid_t> trusted) {
  if (IsOwn(user) || trusted == user) return true;
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  return !error && user == folder_owner && IsRootsAlone(real.parent_path());
}

// The user that listens on the socket; nullopt if no process does.
std::optional<uid_t> ListenerOf(const std::string& path) {
  const auto address = UnixSocketAddress(path);
  if (!address.ok()) return std::nullopt;
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe.valid() || ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&*address),
                                    sizeof(*address)) != 0) {
      continue;
    }
    ucred peer{};
    socklen_t length = sizeof(peer);
    if (::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) return peer.uid;
  }
  return std::nullopt;
}

absl::Status Foreign(const std::string& what, uid_t user) {
  return absl::PermissionDeniedError(absl::StrFormat(
      "%s of user %d, not of user %d or root: that user could read all that is sent", what, user,
      ::geteuid()));
}

}  // namespace

absl::Status CheckSocketFolder(const std::string& path) {
  const fs::path folder = FolderOf(path);
  if (const auto link = ForeignLink(folder)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "socket '%s': '%s' is a link of another user's; listen elsewhere", path, *link));
  }
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return absl::OkStatus();  // the listener says so
  if (!IsOwn(info.st_uid)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "socket folder '%s' belongs to user %d, not to %d: that user could take the socket's "
        "place; listen in a folder of your own",
        folder.string(), info.st_uid, ::geteuid()));
  }
  if ((info.st_mode & kOthersWrite) == 0) return absl::OkStatus();
  // The sticky bit keeps others from taking the place of a socket that is there.
  if ((info.st_mode & S_ISVTX) == 0 && (info.st_uid != 0 || !IsMountPoint(folder))) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "socket folder '%s' has mode %04o: other users could take the socket's place; `chmod "
        "go-w %s`, or listen in another",
        folder.string(), info.st_mode & 07777, folder.string()));
  }
  LogWarning(
      "others may write to the socket's folder",
      {{"folder", folder.string()}, {"mode", absl::StrFormat("%04o", info.st_mode & 07777)}});
  return absl::OkStatus();
}

absl::Status CheckSocketPeer(const std::string& path, std::optional<uid_t> trusted) {
  const fs::path folder = FolderOf(path);
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return absl::OkStatus();  // nobody can be there
  if (const auto link = ForeignLink(folder)) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "socket '%s': '%s' is a link of another user's, which may lead anywhere", path, *link));
  }
  const auto listener = ListenerOf(path);
  if (listener.has_value()) {
    if (Trusts(*listener, folder, info.st_uid, trusted)) return absl::OkStatus();
    return Foreign(absl::StrFormat("the listener on '%s' is", path), *listener);
  }
  // Not there yet, perhaps: whoever owns the folder decides who will be.
  if (Trusts(info.st_uid, folder, info.st_uid, trusted)) return absl::OkStatus();
  return Foreign(absl::StrFormat("the folder of '%s' is", path), info.st_uid);
}

absl::Status CheckTargetPeer(const std::string& target, std::optional<uid_t> trusted) {
  const auto path = UnixSocketPath(target);
  return path.has_value() ? CheckSocketPeer(*path, trusted) : absl::OkStatus();
}

}  // namespace tandem
