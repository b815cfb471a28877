#include "services/common/rpc/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/unique_fd.h"

namespace tandem {
namespace {

// Whether some process accepts connections of `type` (or of another type) on the socket.
absl::StatusOr<bool> HasListener(const std::string& path, const sockaddr_un& address) {
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe.valid()) {
      return absl::InternalError(absl::StrFormat("socket: %s", std::strerror(errno)));
    }
    const auto* raw = reinterpret_cast<const sockaddr*>(&address);
    if (::connect(probe.get(), raw, sizeof(address)) == 0) return true;
    if (errno == EAGAIN) return true;  // its backlog is full
    if (errno == EPROTOTYPE) continue;
    if (errno == ECONNREFUSED || errno == ENOENT) return false;
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: cannot tell whether it is in use: %s", path, std::strerror(errno)));
  }
  return true;
}

}  // namespace

std::optional<std::string> UnixSocketPath(const std::string& target) {
  if (target.rfind("unix://", 0) == 0) return target.substr(7);
  if (target.rfind("unix:", 0) == 0) return target.substr(5);
  return std::nullopt;
}

absl::StatusOr<sockaddr_un> UnixSocketAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("a socket path is empty or holds a NUL");
  }
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("socket path '%s' has %d bytes, at most %d fit an address; use a shorter "
                        "directory",
                        path, path.size(), sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool SocketAnswers(const std::string& path) {
  const auto address = UnixSocketAddress(path);
  return address.ok() && HasListener(path, *address).value_or(false);
}

absl::Status RemoveStaleSocket(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const sockaddr_un address, UnixSocketAddress(path));
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    std::error_code ignored;
    const std::filesystem::path directory = std::filesystem::absolute(path).parent_path();
    if (errno == ENOENT && std::filesystem::is_directory(directory, ignored)) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrFormat(
        "socket directory '%s' is not there; create it or listen elsewhere", directory.string()));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("'%s' exists and is no socket; move it away or listen elsewhere", path));
  }
  TANDEM_ASSIGN_OR_RETURN(const bool live, HasListener(path, address));
  if (live) {
    return absl::AlreadyExistsError(
        absl::StrFormat("another server listens on '%s'; stop it or listen elsewhere", path));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return absl::FailedPreconditionError(
        absl::StrFormat("removing the stale socket '%s': %s", path, std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace tandem
