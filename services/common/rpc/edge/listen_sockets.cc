#include "services/common/rpc/edge/listen_sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem {
namespace {

constexpr int kBacklog = 1024;

absl::Status Taken(const std::string& address, int error) {
  return absl::AlreadyExistsError(
      absl::StrFormat("cannot listen on %s: %s", address, std::strerror(error)));
}

// Binds with a mask that keeps others out from the socket's first moment.
int BindPrivately(int fd, const sockaddr_un& address) {
  static absl::Mutex mask_mutex(absl::kConstInit);  // the mask belongs to the process
  absl::MutexLock lock(&mask_mutex);
  const mode_t old_mask = ::umask(0177);
  const int result = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  ::umask(old_mask);
  errno = error;
  return result;
}

absl::StatusOr<ListenSocket> ListenOnPath(const std::string& target, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const sockaddr_un address, UnixSocketAddress(path));
  ListenSocket socket{
      .fd = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      .local = true,
      .target = target};
  if (!socket.fd.valid() || BindPrivately(socket.fd.get(), address) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(socket.fd.get(), kBacklog) != 0) {
    return Taken(target, errno);
  }
  return socket;
}

std::string NameOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    return absl::StrFormat("[%s]:%d", text, ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
  return absl::StrFormat("%s:%d", text, ntohs(v4.sin_port));
}

}  // namespace

absl::StatusOr<ListenSocket> Listen(const std::string& address) {
  if (const auto path = UnixSocketPath(address)) return ListenOnPath(address, *path);
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon == std::string::npos ? 0 : colon);
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host == "localhost") host = "127.0.0.1";
  const addrinfo hints{.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
                       .ai_family = AF_UNSPEC,
                       .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0 || found == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "listen address '%s' is no ADDRESS:PORT, like 127.0.0.1:50051 or [::1]:50051", address));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  ListenSocket socket{
      .fd = UniqueFd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  const int on = 1;
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (!socket.fd.valid() ||
      ::setsockopt(socket.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket.fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.fd.get(), kBacklog) != 0 ||
      ::getsockname(socket.fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return Taken(address, errno);
  }
  socket.target = NameOf(bound);
  return socket;
}

bool IsAwaited(const ListenSocket& socket) {
  pollfd waits{.fd = socket.fd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&waits, 1, 0) == 1;
}

Accepted Accept(const ListenSocket& socket) {
  Accepted accepted;
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  accepted.fd = UniqueFd(::accept4(socket.fd.get(), reinterpret_cast<sockaddr*>(&address), &length,
                                   SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!accepted.fd.valid()) {
    accepted.error = errno;
    return accepted;
  }
  const int on = 1;
  if (!socket.local) {
    ::setsockopt(accepted.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(accepted.fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    accepted.peer = NameOf(address);
    return accepted;
  }
  ucred peer{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t size = sizeof(peer);
  const bool known = ::getsockopt(accepted.fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  accepted.foreign = !known || (peer.uid != ::geteuid() && peer.uid != 0);
  accepted.peer = absl::StrFormat("unix:uid=%d,pid=%d", static_cast<int64_t>(peer.uid), peer.pid);
  return accepted;
}

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace tandem
