// Client channels between the services.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>

namespace tandem {

// Largest message either side takes.  Payload travels by handle; this bounds what a peer can make
// us buffer.
inline constexpr int kMaxMessageBytes = 64 << 20;
// The same between hosts, where what a segment reads and writes travels in its messages: 2048 rows
// of a residual of 5376 floats are 42 MiB, 64 rows of logits of 262144 tokens 64 MiB.
inline constexpr int kMaxInlineMessageBytes = 256 << 20;

// Whether keepalive pings look after an idle or silent peer.
enum class Keepalive : bool { kOff, kOn };

// A channel to "unix:/path" or "host:port".  Connects lazily and for ever again: first retry
// after 50 ms, at most 2 s apart.  Keepalive pings find a peer that hangs within 40 s; a
// peer that dies on this machine is noticed at once, by its socket.  No HTTP proxy is consulted.
// Without keepalive a peer that hangs is the deadlines' matter alone.
std::shared_ptr<grpc::Channel> CreateChannel(const std::string& target,
                                             Keepalive keepalive = Keepalive::kOn);

// A channel to "host:port" on another host, by `credentials`.  As above, with a connection of its
// own, so that a new channel never waits on an old one's connection that has gone silent; 3 s for
// connecting and the handshake; and messages of up to kMaxInlineMessageBytes.
std::shared_ptr<grpc::Channel> CreateRemoteChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    Keepalive keepalive);

}  // namespace tandem
