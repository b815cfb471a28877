#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/region_channel.h"
#include "services/common/rpc/region_wire.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem {
namespace {

// A connection whose every operation ends within `timeout`, to a listener of the same user.
absl::StatusOr<UniqueFd> Connect(const std::string& path, absl::Duration timeout) {
  TANDEM_ASSIGN_OR_RETURN(const sockaddr_un address, UnixSocketAddress(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return absl::ResourceExhaustedError(absl::StrFormat("socket: %s", std::strerror(errno)));
  }
  const timeval limit = absl::ToTimeval(std::max(timeout, absl::Milliseconds(1)));
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0 ||
      ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0) {
    return absl::InternalError(absl::StrFormat("setsockopt: %s", std::strerror(errno)));
  }
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::UnavailableError(
        absl::StrFormat("connecting to '%s': %s", path, std::strerror(errno)));
  }
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
      peer.uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "'%s' belongs to user %d, this process runs as %d", path, peer.uid, ::geteuid()));
  }
  return fd;
}

// Takes the first descriptor of a received message and closes any other.
UniqueFd TakeDescriptor(msghdr& message) {
  UniqueFd first;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int raw = -1;
      std::memcpy(&raw, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      UniqueFd fd(raw);
      if (!first.valid()) first = std::move(fd);
    }
  }
  return first;
}

absl::StatusOr<Region> ReceiveReply(int fd, const std::string& path) {
  region_wire::Reply reply;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec part = {&reply, sizeof(reply)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    received = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received <= 0) {
    return absl::UnavailableError(absl::StrFormat("'%s' gave no reply: %s", path,
                                                  received == 0 ? "closed" : std::strerror(errno)));
  }
  UniqueFd descriptor = TakeDescriptor(message);
  const region_wire::ReplyHeader& header = reply.header;
  if ((message.msg_flags & MSG_TRUNC) != 0 || received < static_cast<ssize_t>(sizeof(header)) ||
      header.magic != region_wire::kMagic ||
      received != static_cast<ssize_t>(sizeof(header) + header.message_bytes)) {
    return absl::InternalError(absl::StrFormat("'%s' sent a malformed reply", path));
  }
  if (header.version != region_wire::kVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("'%s' speaks version %d of the descriptor protocol, this process %d", path,
                        header.version, region_wire::kVersion));
  }
  if (header.code != 0) {
    return absl::Status(static_cast<absl::StatusCode>(header.code),
                        std::string(reply.message, header.message_bytes));
  }
  if (!descriptor.valid()) {
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return absl::ResourceExhaustedError("no file descriptor left; raise the limit (ulimit -n)");
    }
    return absl::InternalError(absl::StrFormat("'%s' sent a reply without a descriptor", path));
  }
  return Region{std::move(descriptor), header.region_bytes};
}

}  // namespace

absl::StatusOr<std::string> RegionSocketPath(const std::string& loader_target) {
  const auto path = UnixSocketPath(loader_target);
  if (!path.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("loader target '%s' is no unix socket; shared memory cannot be passed over "
                        "it, use unix:/PATH",
                        loader_target));
  }
  return *path + ".fds";
}

absl::StatusOr<Region> FetchRegion(const std::string& socket_path, const RegionRequest& request,
                                   absl::Duration timeout) {
  if (request.lease_token.size() != kLeaseTokenBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "lease token of %d bytes, must be %d", request.lease_token.size(), kLeaseTokenBytes));
  }
  TANDEM_ASSIGN_OR_RETURN(const UniqueFd fd, Connect(socket_path, timeout));
  region_wire::Request packet;
  std::memcpy(packet.token, request.lease_token.data(), kLeaseTokenBytes);
  packet.kind = static_cast<uint32_t>(request.kind);
  packet.index = request.index;
  if (::send(fd.get(), &packet, sizeof(packet), MSG_NOSIGNAL) != sizeof(packet)) {
    return absl::UnavailableError(
        absl::StrFormat("sending to '%s': %s", socket_path, std::strerror(errno)));
  }
  return ReceiveReply(fd.get(), socket_path);
}

}  // namespace tandem
