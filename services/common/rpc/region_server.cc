#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/region_channel.h"
#include "services/common/rpc/region_wire.h"
#include "services/common/rpc/socket_trust.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem {
namespace {

// Sends a refusal, or a region with its descriptor.  False: the peer does not read.
bool SendReply(int fd, const absl::StatusOr<Region>& result) {
  region_wire::Reply reply;
  reply.header.code = static_cast<int32_t>(result.status().code());
  const std::string_view message(result.status().message().data(),
                                 result.status().message().size());
  reply.header.message_bytes =
      static_cast<uint32_t>(std::min<size_t>(message.size(), region_wire::kMaxMessageBytes));
  message.copy(reply.message, reply.header.message_bytes);
  iovec part = {&reply, sizeof(reply.header) + reply.header.message_bytes};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (result.ok()) {
    reply.header.region_bytes = result->bytes;
    packet.msg_control = control;
    packet.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int descriptor = result->fd.get();
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(descriptor));
  }
  return ::sendmsg(fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(part.iov_len);
}

// Reads one packet.  Descriptors sent along are never received: there is no room for them, so the
// kernel drops them and says so.
absl::StatusOr<RegionRequest> Receive(int fd) {
  region_wire::Request packet;
  iovec part = {&packet, sizeof(packet)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t received = ::recvmsg(fd, &message, MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
    return absl::CancelledError("nothing to read");
  }
  if (received <= 0) return absl::UnavailableError("the peer has gone");
  if (received != sizeof(packet) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      packet.magic != region_wire::kMagic) {
    return absl::InvalidArgumentError("malformed request");
  }
  if (packet.version != region_wire::kVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("descriptor protocol version %d, this loader speaks %d", packet.version,
                        region_wire::kVersion));
  }
  if (packet.kind >= kNumRegionKinds) {
    return absl::InvalidArgumentError(
        absl::StrFormat("region kind %d of %d", packet.kind, kNumRegionKinds));
  }
  return RegionRequest{std::string(reinterpret_cast<const char*>(packet.token), kLeaseTokenBytes),
                       static_cast<RegionKind>(packet.kind), packet.index};
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegionServer>> RegionServer::Start(Options options,
                                                                  Handler handler) {
  TANDEM_ASSIGN_OR_RETURN(const sockaddr_un address, UnixSocketAddress(options.socket_path));
  TANDEM_RETURN_IF_ERROR(CheckSocketFolder(options.socket_path));
  TANDEM_RETURN_IF_ERROR(RemoveStaleSocket(options.socket_path));
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener.valid() || !stop.valid()) {
    return absl::ResourceExhaustedError(absl::StrFormat("socket: %s", std::strerror(errno)));
  }
  const std::string path = options.socket_path;
  // The mode is set before anything listens, so that nobody can connect in between.
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(listener.get(), 64) != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("cannot listen on '%s': %s", path, std::strerror(errno)));
  }
  std::unique_ptr<RegionServer> server(new RegionServer(std::move(options), std::move(handler)));
  server->listener_ = std::move(listener);
  server->stop_ = std::move(stop);
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

RegionServer::~RegionServer() {
  const uint64_t one = 1;
  TANDEM_CHECK(::write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
  ::unlink(options_.socket_path.c_str());
}

void RegionServer::Run() {
  std::vector<pollfd> fds;
  while (true) {
    const absl::Time now = absl::Now();
    std::erase_if(connections_, [now](const Connection& c) { return c.deadline <= now; });
    const bool accepting =
        static_cast<int>(connections_.size()) < options_.max_connections && accept_after_ <= now;
    fds.assign({{stop_.get(), POLLIN, 0}, {accepting ? listener_.get() : -1, POLLIN, 0}});
    absl::Time wake = accept_after_ > now ? accept_after_ : absl::InfiniteFuture();
    for (const Connection& connection : connections_) {
      fds.push_back({connection.fd.get(), POLLIN, 0});
      wake = std::min(wake, connection.deadline);
    }
    const int timeout_ms = wake == absl::InfiniteFuture()
                               ? -1
                               : static_cast<int>(absl::ToInt64Milliseconds(wake - now)) + 1;
    if (::poll(fds.data(), fds.size(), timeout_ms) < 0) continue;
    if (fds[0].revents != 0) return;
    for (size_t i = connections_.size(); i-- > 0;) {
      if (fds[i + 2].revents == 0 || Serve(connections_[i])) continue;
      connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(i));
    }
    if (fds[1].revents != 0) Accept();
  }
}

void RegionServer::Accept() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    // Out of descriptors: the connection stays in the backlog, so look again a little later.
    if (errno == EMFILE || errno == ENFILE) accept_after_ = absl::Now() + absl::Milliseconds(100);
    return;
  }
  ucred peer{};
  socklen_t length = sizeof(peer);
  const bool same_user = ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
                         peer.uid == options_.allowed_uid;
  if (!same_user) {
    LogWarning("foreign user refused",
               {{"socket", options_.socket_path}, {"uid", peer.uid}, {"pid", peer.pid}});
  }
  connections_.push_back({std::move(fd), absl::Now() + options_.idle_timeout, same_user});
}

bool RegionServer::Serve(Connection& connection) {
  const absl::StatusOr<RegionRequest> request = Receive(connection.fd.get());
  if (absl::IsCancelled(request.status())) return true;
  if (absl::IsUnavailable(request.status())) return false;
  if (!connection.same_user) {
    // Refused here and not at the door: closing on an unread request would lose the reply.
    SendReply(connection.fd.get(),
              absl::PermissionDeniedError("regions are passed to processes of the same user"));
    return false;
  }
  if (!request.ok()) {
    LogWarning("region request refused", {{"reason", std::string(request.status().message())}});
    SendReply(connection.fd.get(), request.status());
    return false;
  }
  connection.deadline = absl::Now() + options_.idle_timeout;
  return SendReply(connection.fd.get(), handler_(*request));
}

}  // namespace tandem
