#include "services/common/rpc/edge/relay.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "services/common/base/logging.h"

namespace tandem {
namespace {

constexpr uint32_t kReadable = EPOLLIN;
constexpr uint32_t kWritable = EPOLLOUT;
constexpr int64_t kLingerNs = 1'000'000'000;
constexpr size_t kLingerBytes = 1 << 20;
constexpr size_t kShortRead = 2 << 10;  // some twenty requests' headers

// How much of `bytes` the socket took; -1: it is gone.
ssize_t SendSome(int fd, std::string_view bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      return -1;
    }
  }
  return static_cast<ssize_t>(sent);
}

// Bytes read; 0 at the end, also by an error; -1: nothing is there.
ssize_t ReadSome(int fd, std::span<char> into) {
  while (true) {
    const ssize_t n = ::recv(fd, into.data(), into.size(), 0);
    if (n >= 0) return n;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return -1;
    if (errno != EINTR) return 0;
  }
}

}  // namespace

Relay::Relay(RelayContext& context, H2Group& group, UniqueFd client, std::string peer,
             int64_t now_ns)
    : context_(context),
      client_(std::move(client)),
      peer_(std::move(peer)),
      guard_(context.limits, context.totals, group, now_ns) {}

uint32_t Relay::client_events() const {
  if (closed()) return 0;
  const uint32_t out = to_client_.empty() ? 0 : kWritable;
  if (linger_ends_ns_ != 0) return out | kReadable;
  const bool reads = to_grpc_.empty() && pause_ends_ns_ == 0 && !client_ended_;
  return out | (reads ? kReadable : 0);
}

uint32_t Relay::grpc_events() const {
  if (!grpc_.valid()) return 0;
  return (to_client_.empty() ? kReadable : 0) | (to_grpc_.empty() ? 0 : kWritable);
}

void Relay::OnClient(uint32_t events, int64_t now_ns) {
  if ((events & EPOLLOUT) != 0 && !to_client_.empty()) {
    const ssize_t sent = SendSome(client_.get(), to_client_);
    if (sent < 0) return Close();
    if (sent > 0) blocked_since_ns_ = 0;
    to_client_.erase(0, static_cast<size_t>(sent));
    if (to_client_.empty() && linger_ends_ns_ != 0) ::shutdown(client_.get(), SHUT_WR);
  }
  if ((events & EPOLLIN) != 0) return ReadClient(now_ns);
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) Close();
}

void Relay::OnGrpc(uint32_t events, int64_t now_ns) {
  if ((events & (EPOLLOUT | EPOLLERR)) != 0 && !to_grpc_.empty()) {
    const ssize_t sent = SendSome(grpc_.get(), to_grpc_);
    to_grpc_.erase(0, sent < 0 ? to_grpc_.size() : static_cast<size_t>(sent));
    if (to_grpc_.empty()) {
      guard_.OnResume(now_ns);
      FinishInput();
    }
  }
  if ((events & (EPOLLIN | EPOLLHUP)) != 0 && to_client_.empty()) ReadGrpc(now_ns);
}

void Relay::ReadClient(int64_t now_ns) {
  const size_t most = guard_.group_in_debt() ? kShortRead : context_.scratch.size();
  const ssize_t n = ReadSome(client_.get(), context_.scratch.first(most));
  if (n < 0) return;
  if (linger_ends_ns_ != 0) {
    lingered_bytes_ += static_cast<size_t>(n);
    if (n == 0 || lingered_bytes_ > kLingerBytes) Close();
    return;
  }
  if (n == 0) {
    client_ended_ = true;
    return FinishInput();
  }
  const std::string_view in(context_.scratch.data(), static_cast<size_t>(n));
  const H2Verdict verdict = guard_.OnClient(in, now_ns);
  if (!verdict.ok()) return End(verdict, now_ns);
  if (!Forward(in)) return Close();
  ForwardResets();
  if (guard_.pause_ns() > 0) pause_ends_ns_ = now_ns + guard_.pause_ns();
}

// Hands what the guard has released to gRPC and holds the rest; false if there is no way to gRPC.
bool Relay::Forward(std::string_view in) {
  const uint64_t release = guard_.released_bytes() - forwarded_bytes_;
  if (release == 0) {
    hold_.append(in);
    return true;
  }
  if (!connected_) {
    auto connection = context_.connect(peer_);
    if (!connection.ok()) {
      LogWarning("cannot hand a gRPC connection on",
                 {{"peer", peer_}, {"error", std::string(connection.status().message())}});
      return false;
    }
    grpc_ = *std::move(connection);
    connected_ = true;
  }
  forwarded_bytes_ += release;
  if (hold_.empty()) {
    SendGrpc(in.substr(0, release));
    in.remove_prefix(release);
  } else {
    const size_t more = release - hold_.size();  // the held bytes end within a frame
    hold_.append(in.substr(0, more));
    SendGrpc(hold_);
    hold_ = {};
    in.remove_prefix(more);
  }
  hold_.append(in);
  return true;
}

void Relay::ForwardResets() {
  for (const H2Reset& reset : guard_.TakeResets()) {
    ++context_.counts.resets[static_cast<size_t>(reset.fault)];
    SendGrpc(H2RstStream(reset.stream, H2Error::kCancel));
    client_resets_ += H2RstStream(reset.stream, reset.error);
  }
  SendClientResets();
}

void Relay::SendClientResets() {
  if (client_resets_.empty() || !guard_.server_between_frames()) return;
  SendClient(std::exchange(client_resets_, {}));
}

void Relay::ReadGrpc(int64_t now_ns) {
  const ssize_t n = ReadSome(grpc_.get(), context_.scratch);
  if (n < 0) return;
  if (n == 0) {
    grpc_.Reset();
    return Linger(now_ns);
  }
  const std::string_view in(context_.scratch.data(), static_cast<size_t>(n));
  server_began_ = true;
  const H2Verdict verdict = guard_.OnServer(in, now_ns);
  SendClient(in);
  if (closed()) return;
  SendClientResets();
  if (!verdict.ok()) End(verdict, now_ns);
}

void Relay::SendGrpc(std::string_view bytes) {
  if (!grpc_.valid()) return;
  if (!to_grpc_.empty()) {
    to_grpc_.append(bytes);
    return;
  }
  const ssize_t sent = SendSome(grpc_.get(), bytes);
  // Gone: what it had to say is still to be read.
  if (sent >= 0) to_grpc_.assign(bytes.substr(static_cast<size_t>(sent)));
}

void Relay::SendClient(std::string_view bytes) {
  if (closed()) return;
  if (!to_client_.empty()) {
    to_client_.append(bytes);
    return;
  }
  const ssize_t sent = SendSome(client_.get(), bytes);
  if (sent < 0) return Close();
  to_client_.assign(bytes.substr(static_cast<size_t>(sent)));
}

// The client sends no more: gRPC ends the connection when it has read what came.
void Relay::FinishInput() {
  if (!client_ended_ || !to_grpc_.empty()) return;
  if (!grpc_.valid()) return Close();
  ::shutdown(grpc_.get(), SHUT_WR);
}

void Relay::OnTime(int64_t now_ns) {
  if (linger_ends_ns_ != 0) {
    if (now_ns >= linger_ends_ns_) Close();
    return;
  }
  if (pause_ends_ns_ != 0 && now_ns >= pause_ends_ns_) {
    pause_ends_ns_ = 0;
    guard_.OnResume(now_ns);
  }
  if (to_client_.empty()) {
    blocked_since_ns_ = 0;
  } else if (blocked_since_ns_ == 0) {
    blocked_since_ns_ = now_ns;
  } else if (now_ns - blocked_since_ns_ >
             absl::ToInt64Nanoseconds(context_.limits.blocked_timeout)) {
    ++context_.counts.ended[static_cast<size_t>(H2Fault::kSlow)];
    return Close();
  }
  if (!to_grpc_.empty() || pause_ends_ns_ != 0) guard_.OnResume(now_ns);
  const H2Verdict verdict = guard_.OnTime(now_ns);
  if (!verdict.ok()) return End(verdict, now_ns);
  ForwardResets();
}

void Relay::End(const H2Verdict& verdict, int64_t now_ns) {
  ++context_.counts.ended[static_cast<size_t>(verdict.fault)];
  if (verdict.fault != H2Fault::kIdle) {
    if (now_ns >= context_.next_log_ns) {
      context_.next_log_ns = now_ns + 1'000'000'000;
      LogWarning("gRPC connection ended", {{"peer", peer_},
                                           {"fault", std::string(H2FaultName(verdict.fault))},
                                           {"why", verdict.why}});
    }
  }
  grpc_.Reset();  // gRPC forgets its calls
  to_grpc_ = {};
  hold_ = {};
  SendClientResets();
  SendGoaway(verdict.error, verdict.why);
  Linger(now_ns);
}

// Unless a frame of gRPC's is half sent, or the client does not speak HTTP/2.
void Relay::SendGoaway(H2Error error, std::string_view why) {
  if (!guard_.established() || !guard_.server_between_frames()) return;
  // What a server says first is SETTINGS.
  if (!server_began_) SendClient(H2FrameHeader({.type = H2FrameType::kSettings}));
  SendClient(H2Goaway(guard_.last_stream(), error, why));
}

// Closing while unread bytes are there would have the kernel throw away bytes on their way to the
// client.
void Relay::Linger(int64_t now_ns) {
  guard_.Drop();
  if (closed()) return;
  to_grpc_ = {};
  hold_ = {};
  linger_ends_ns_ = now_ns + kLingerNs;
  if (to_client_.empty()) ::shutdown(client_.get(), SHUT_WR);
}

void Relay::Evict() {
  ++context_.counts.evicted;
  grpc_.Reset();
  if (linger_ends_ns_ == 0) SendGoaway(H2Error::kNoError, "too many connections");
  Close();
}

bool Relay::Shed(bool largest) {
  if (!(largest ? guard_.ShedLargest() : guard_.ShedNewest())) return false;
  ForwardResets();
  return true;
}

int Relay::eviction_rank() const {
  if (closed()) return -1;
  if (linger_ends_ns_ != 0 || !guard_.established()) return 0;
  if (guard_.num_streams() == 0) return guard_.last_stream() == 0 ? 1 : 2;
  return guard_.waits_for_client() ? 3 : -1;
}

void Relay::Close() {
  guard_.Drop();
  client_.Reset();
  grpc_.Reset();
  to_grpc_ = {};
  to_client_ = {};
  hold_ = {};
}

}  // namespace tandem
