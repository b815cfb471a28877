// A filter between a gRPC server and its clients: accepts their connections and passes their bytes
// on.
//
//   auto edge = GrpcEdge::Listen({.max_connections = 512}, {"unix:/run/tandem/gateway.sock"});
//   (*edge)->Begin([&server](int fd) { grpc::AddInsecureChannelFromFd(&server, fd); });
//   ...
//   (*edge)->StopAccepting();
//   server.Shutdown(...);     // its last answers still reach the clients
//   (*edge)->Stop();
//
// One thread, with epoll.  gRPC gets a connection when its preface is complete, and a frame when it
// is whole (h2_guard.h, relay.h).  A quarter of the places is for unix sockets alone.  When all
// places are taken, a connection that waits for its client is closed to make room: the oldest of
// the peer with most connections.  If no connection can be closed, or descriptors run out, new
// connections wait in the kernel, and the edge tries again every 100 ms.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/rpc/edge/edge_counts.h"
#include "services/common/rpc/edge/h2_guard.h"

namespace tandem {

struct EdgeOptions {
  H2Limits limits;
  uint32_t max_connections = 512;  // three descriptors each
  EdgeCounts* counts = nullptr;    // may be null.  Borrowed; must outlive the edge
};

// Thread-safe.
class GrpcEdge {
 public:
  // Makes a server serve the connection `fd`; takes ownership of the descriptor.
  using Serve = std::function<void(int fd)>;

  // Binds the addresses (listen_sockets.h); nothing is accepted before Begin.
  static absl::StatusOr<std::unique_ptr<GrpcEdge>> Listen(
      const EdgeOptions& options, const std::vector<std::string>& addresses);
  // Stops.
  ~GrpcEdge();

  // Addresses that it listens at, with the actual ports.
  const std::vector<std::string>& targets() const { return targets_; }

  void Begin(Serve serve);
  // Closes the listening sockets; open connections go on.  Later calls have no effect.
  void StopAccepting();
  // Closes everything.  Later calls have no effect.
  void Stop();

 private:
  class Loop;
  explicit GrpcEdge(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
  std::vector<std::string> targets_;
};

}  // namespace tandem
