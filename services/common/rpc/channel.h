// Client channels between the services.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>

namespace tandem {

// Largest message that either side accepts.  Payload travels by handle; this bounds the memory that
// a peer can make us buffer.
inline constexpr int kMaxMessageBytes = 64 << 20;
// The same between hosts, where messages carry a segment's inputs and outputs: 2048 rows of a
// residual of 5376 floats are 42 MiB, 64 rows of logits of 262144 tokens 64 MiB.
inline constexpr int kMaxInlineMessageBytes = 256 << 20;

// Whether keepalive pings check an idle or silent peer.
enum class Keepalive : bool { kOff, kOn };

// A channel to "unix:/path" or "host:port".  Connects lazily and retries for ever: first retry
// after 50 ms, at most 2 s apart.  Keepalive pings detect a hung peer within 40 s; the
// death of a peer on this machine shows at once, by its socket.  No HTTP proxy is consulted.
// Without keepalive only deadlines detect a hung peer.
std::shared_ptr<grpc::Channel> CreateChannel(const std::string& target,
                                             Keepalive keepalive = Keepalive::kOn);

// A channel to "host:port" on another host, by `credentials`.  As above, with a connection of its
// own, so that a new channel never waits for an old, silent connection; 3 s for
// connecting and the handshake; and messages of up to kMaxInlineMessageBytes.
std::shared_ptr<grpc::Channel> CreateRemoteChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    Keepalive keepalive);

}  // namespace tandem
