// The gRPC server of every service: sockets, health, reflection, orderly end.
//
//   ShutdownSignals signals;                       // first thing in main
//   auto server = Server::Start({.listen = {"unix:/run/tandem/loader.sock"}},
//                               {{Loader::service_full_name(), &service}});
//   (*server)->SetServing(true);
//   signals.Wait();
//   service.Drain();
//   (*server)->Shutdown(absl::Seconds(10));
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/edge/grpc_edge.h"
#include "services/common/rpc/shutdown_signals.h"
#include "services/common/rpc/tls.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem {

struct ServerOptions {
  // "unix:/path" or "host:port" each; port 0 takes a free one.  Hosts other than loopback are
  // refused without `tls` unless `allow_remote`: traffic is neither encrypted nor authenticated.
  std::vector<std::string> listen;
  bool allow_remote = false;
  TlsFiles tls;  // for every port; a unix socket needs none.  CheckTlsFiles is the caller's.
  int max_message_bytes = kMaxMessageBytes;
  // What stands between clients and gRPC; null: clients reach gRPC itself.  Not with `tls`.
  std::optional<EdgeOptions> edge;
  // Health and reflection; off for a listener beside a main one.
  bool with_plugins = true;
  // Applied to the builder last, for completion queues of one's own.
  std::function<void(grpc::ServerBuilder&)> configure;
};

struct ServedService {
  std::string full_name;             // "tandem.loader.v1.Loader"
  grpc::Service* service = nullptr;  // Borrowed; must outlive the server
};

// Whether "host:port" is on this machine's loopback.
bool IsLoopback(const std::string& address);

// Thread-safe.
class Server {
 public:
  // Listens and begins to answer.  Health says NOT_SERVING until SetServing(true).
  // A unix socket left behind by a dead process is replaced; its mode is 0600.
  // ALREADY_EXISTS: a live server has the socket or port.  INVALID_ARGUMENT: an address that is
  // malformed, too long or not loopback.  FAILED_PRECONDITION: the path holds something else, or
  // another user could take the socket's place (socket_trust.h).
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<ServedService>& services);
  // Shuts down at once.
  ~Server();

  // What grpc.health.v1.Health answers, for the server as a whole and for each service.  Nothing
  // without plugins.
  void SetServing(bool serving);

  // Where it listens, ports filled in: targets for CreateChannel.
  const std::vector<std::string>& targets() const { return targets_; }

  // Stops taking calls, gives those in progress `grace` to end, cancels the rest, and returns when
  // every reaction has ended.  Later calls do nothing.
  void Shutdown(absl::Duration grace);

 private:
  Server() = default;
  absl::Status ListenItself(grpc::ServerBuilder& builder, const ServerOptions& options);
  absl::Status ListenByEdge(grpc::ServerBuilder& builder, const ServerOptions& options);

  std::vector<std::string> service_names_;
  std::vector<std::string> targets_;
  std::unique_ptr<GrpcEdge> edge_;  // outlives the server's connections
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tandem
