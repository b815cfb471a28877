#include "services/common/rpc/server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/socket_trust.h"

namespace tandem {
namespace {

// Health and reflection are switches of the whole process in gRPC.
void EnablePlugins() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

// Checks one address before gRPC sees it, whose own errors say nothing.
absl::Status CheckAddress(const std::string& address, bool allow_remote) {
  if (const auto path = UnixSocketPath(address)) {
    TANDEM_RETURN_IF_ERROR(CheckSocketFolder(*path));
    return RemoveStaleSocket(*path);
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size() ||
      address.find_first_not_of("0123456789", colon + 1) != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrFormat("listen address '%s' is neither unix:/PATH nor HOST:PORT", address));
  }
  if (!allow_remote && !IsLoopback(address)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("listen address '%s' is not loopback: this traffic is neither encrypted "
                        "nor authenticated; use 127.0.0.1 and a proxy in front, or mutual TLS "
                        "where the service has --tls-cert",
                        address));
  }
  return absl::OkStatus();
}

void SetLimits(grpc::ServerBuilder& builder, int max_message_bytes) {
  builder.SetMaxReceiveMessageSize(max_message_bytes);
  builder.SetMaxSendMessageSize(max_message_bytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
}

// The edge's limits, as far as gRPC 1.51 knows them.  Without its probe for bandwidth the windows
// and the longest frame stay as they are announced first.
void SetLimitsBehindEdge(grpc::ServerBuilder& builder, const H2Limits& limits,
                         int max_message_bytes) {
  // gRPC's refusal of a message says why, the edge's reset does not: gRPC's comes first.
  const auto most = static_cast<int64_t>(limits.max_request_bytes - kH2RequestReserve);
  builder.SetMaxReceiveMessageSize(static_cast<int>(std::min<int64_t>(max_message_bytes, most)));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(limits.max_streams));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, static_cast<int>(kH2MaxFrameBytes));
  grpc::ResourceQuota quota("behind the edge");
  quota.Resize(2 * limits.max_total_bytes);
  builder.SetResourceQuota(quota);
}

// Other hosts vanish without a word.  A ping waits for its answer for as long as a segment may run:
// the thread that would read it may be the device's.
void SetLimitsForOtherHosts(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
}

class NoPlugins final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
  }
};

void LeaveOutPlugins(grpc::ServerBuilder& builder) {
  builder.SetOption(std::make_unique<NoPlugins>());
  builder.SetOption(std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
}

// Binds with a mask that keeps others out from the socket's first moment.
std::unique_ptr<grpc::Server> BuildPrivately(grpc::ServerBuilder& builder) {
  static absl::Mutex mask_mutex(absl::kConstInit);  // the mask belongs to the process
  absl::MutexLock lock(&mask_mutex);
  const mode_t old_mask = ::umask(0077);
  auto server = builder.BuildAndStart();
  ::umask(old_mask);
  return server;
}

}  // namespace

bool IsLoopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<ServedService>& services) {
  if (options.listen.empty()) return absl::InvalidArgumentError("no address to listen on");
  EnablePlugins();
  grpc::ServerBuilder builder;
  SetLimits(builder, options.max_message_bytes);
  if (options.tls.given() || options.allow_remote) SetLimitsForOtherHosts(builder);
  if (!options.with_plugins) LeaveOutPlugins(builder);
  for (const std::string& address : options.listen) {
    const bool tls = options.tls.given() && !UnixSocketPath(address).has_value();
    TANDEM_RETURN_IF_ERROR(CheckAddress(address, tls || options.allow_remote));
  }
  std::unique_ptr<Server> result(new Server);
  for (const ServedService& served : services) {
    builder.RegisterService(served.service);
    result->service_names_.push_back(served.full_name);
  }
  if (options.configure) options.configure(builder);
  TANDEM_RETURN_IF_ERROR(options.edge.has_value() ? result->ListenByEdge(builder, options)
                                                  : result->ListenItself(builder, options));
  for (const std::string& target : result->targets_) LogInfo("listening", {{"target", target}});
  result->SetServing(false);
  return result;
}

absl::Status Server::ListenItself(grpc::ServerBuilder& builder, const ServerOptions& options) {
  std::vector<int> ports(options.listen.size(), 0);
  for (size_t i = 0; i < options.listen.size(); ++i) {
    const bool tls = options.tls.given() && !UnixSocketPath(options.listen[i]).has_value();
    builder.AddListeningPort(
        options.listen[i],
        tls ? MakeServerCredentials(options.tls) : grpc::InsecureServerCredentials(), &ports[i]);
  }
  server_ = BuildPrivately(builder);
  // gRPC stops at the first address that it cannot have: those before it have a port, a socket one
  // of 1.
  const auto failed = std::find(ports.begin(), ports.end(), 0);
  if (server_ == nullptr || failed != ports.end()) {
    const size_t i = std::min<size_t>(failed - ports.begin(), ports.size() - 1);
    return absl::AlreadyExistsError(absl::StrFormat(
        "cannot listen on %s: the address is in use or not permitted", options.listen[i]));
  }
  for (size_t i = 0; i < options.listen.size(); ++i) {
    std::string target = options.listen[i];
    if (const auto path = UnixSocketPath(target)) {
      if (::chmod(path->c_str(), 0600) != 0) {
        return absl::InternalError(absl::StrFormat("chmod '%s': %s", *path, std::strerror(errno)));
      }
    } else {
      target = absl::StrFormat("%s:%d", target.substr(0, target.rfind(':')), ports[i]);
    }
    targets_.push_back(std::move(target));
  }
  return absl::OkStatus();
}

absl::Status Server::ListenByEdge(grpc::ServerBuilder& builder, const ServerOptions& options) {
  if (options.tls.given()) return absl::InvalidArgumentError("an edge reads no TLS");
  SetLimitsBehindEdge(builder, options.edge->limits, options.max_message_bytes);
  TANDEM_ASSIGN_OR_RETURN(edge_, GrpcEdge::Listen(*options.edge, options.listen));
  targets_ = edge_->targets();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC does not start");
  edge_->Begin([server = server_.get()](int fd) { grpc::AddInsecureChannelFromFd(server, fd); });
  return absl::OkStatus();
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

void Server::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus("", serving);
  for (const std::string& name : service_names_) health->SetServingStatus(name, serving);
}

void Server::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  SetServing(false);
  if (edge_ != nullptr) edge_->StopAccepting();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
}

}  // namespace tandem
