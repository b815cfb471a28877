// The client behind a gRPC call that came through the edge.
#pragma once

#include <string>

namespace tandem {

// The server's end of a connection is `fd` from now on, and belongs to `peer`, until another
// connection has that descriptor.  Thread-safe.
void NamePeer(int fd, const std::string& peer);

// ServerContext::peer() in gRPC's own terms for the caller: "fd:12" ->
// "ipv4:127.0.0.1:55512", "ipv6:[::1]:55512" or "unix:uid=1000,pid=77".  Other texts, and those of
// unknown descriptors, stay as they are.
// Thread-safe.
std::string PeerOfCall(const std::string& grpc_peer);

}  // namespace tandem
