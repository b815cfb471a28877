// Accepts connections for a gRPC server and stands between it and its clients.
//
//   auto edge = GrpcEdge::Listen({.max_connections = 512}, {"unix:/run/tandem/gateway.sock"});
//   (*edge)->Begin([&server](int fd) { grpc::AddInsecureChannelFromFd(&server, fd); });
//   ...
//   (*edge)->StopAccepting();
//   server.Shutdown(...);     // its last words still reach the clients
//   (*edge)->Stop();
//
// One thread, by epoll.  gRPC hears of a connection once its preface is complete, and of a frame
// once it is whole (h2_guard.h, relay.h).  A quarter of the places is for unix sockets alone.
// Where all places are taken, connections that wait for their clients make room, the oldest of the
// peer with most first.  Where none does, or descriptors run out, the next ones wait in the kernel
// and the edge looks again every 100 ms.
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
  EdgeCounts* counts = nullptr;    // counts if it is there; Borrowed; must outlive the edge
};

// Thread-safe.
class GrpcEdge {
 public:
  // Has a server serve the connection whose end `fd` is; takes the descriptor.
  using Serve = std::function<void(int fd)>;

  // Binds the addresses (listen_sockets.h); nothing is accepted before Begin.
  static absl::StatusOr<std::unique_ptr<GrpcEdge>> Listen(
      const EdgeOptions& options, const std::vector<std::string>& addresses);
  // Stops.
  ~GrpcEdge();

  // Where it listens, ports filled in.
  const std::vector<std::string>& targets() const { return targets_; }

  void Begin(Serve serve);
  // Closes the listening sockets; connections there are go on.  Later calls do nothing.
  void StopAccepting();
  // Closes everything.  Later calls do nothing.
  void Stop();

 private:
  class Loop;
  explicit GrpcEdge(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
  std::vector<std::string> targets_;
};

}  // namespace tandem
