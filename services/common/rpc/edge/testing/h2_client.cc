#include "services/common/rpc/edge/testing/h2_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem::testing {
namespace {

std::string Field(const std::string& name, const std::string& value) {
  TANDEM_CHECK(name.size() < 127 && value.size() < 127);
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

}  // namespace

H2Client::H2Client(const std::string& target) {
  if (const auto path = UnixSocketPath(target)) {
    fd_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = UnixSocketAddress(*path).value();
    TANDEM_CHECK(
        ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    return;
  }
  fd_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(&target[target.rfind(':') + 1])));
  TANDEM_CHECK(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
               0);
}

bool H2Client::Send(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

void H2Client::HalfClose() { ::shutdown(fd_.get(), SHUT_WR); }

bool H2Client::Await(const std::string& text, absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  while (read_.find(text) == std::string::npos) {
    if (!ReadMore(deadline)) return false;
  }
  return true;
}

bool H2Client::AwaitEnd(absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  while (ReadMore(deadline)) continue;
  return ended_;
}

bool H2Client::ReadMore(absl::Time deadline) {
  pollfd waits{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
  if (ended_ || left <= 0 || ::poll(&waits, 1, static_cast<int>(left)) != 1) return false;
  std::array<char, 65536> buffer;
  const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
  ended_ = n <= 0;
  if (n > 0) read_.append(buffer.data(), static_cast<size_t>(n));
  return n > 0;
}

std::string CallHeaders(const std::string& path) {
  // ":method: POST" and ":scheme: http" of the static table.
  return "\x83\x86" + Field(":path", path) + Field(":authority", "localhost") +
         Field("content-type", "application/grpc") + Field("te", "trailers");
}

std::string GrpcMessage(const std::string& payload) {
  std::string out(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(payload.size() >> shift));
  }
  return out + payload;
}

}  // namespace tandem::testing
