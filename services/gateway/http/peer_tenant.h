// The tenant of a client without an API key.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::gateway {

// `address`: the peer's.  All connections of a host are one tenant; an IPv6 network of 64 bits
// counts as one host.  On loopback each connection is a tenant of its own, because it may come from
// any user.
std::string PeerTenant(const std::string& address, uint16_t port);
// The same for what gRPC calls a peer: "ipv4:192.0.2.7:4242" or "192.0.2.7:4242",
// "ipv6:[::1]:4242", "unix:".  All clients of a unix socket are one tenant where gRPC does not tell
// them apart; each process is one where it does ("unix:uid=0,pid=7").
std::string GrpcPeerTenant(const std::string& peer);

}  // namespace tandem::gateway
