// Client channels between the services.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace tandem {

// Largest message either side takes.  Payload travels by handle; this bounds what a peer can make
// us buffer.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Whether keepalive pings look after an idle or silent peer.
enum class Keepalive : bool { kOff, kOn };

// A channel to "unix:/path" or "host:port".  Connects lazily and for ever again: first retry
// after 50 ms, at most 2 s apart.  Keepalive pings find a peer that hangs within 40 s; a
// peer that dies on this machine is noticed at once, by its socket.  No HTTP proxy is consulted.
// Without keepalive a peer that hangs is the deadlines' matter alone.
std::shared_ptr<grpc::Channel> CreateChannel(const std::string& target,
                                             Keepalive keepalive = Keepalive::kOn);

}  // namespace tandem
