#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/metrics/metrics_server.h"
#include "services/common/rpc/library_logs.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/serve_flags.h"
#include "tools/tandem/doctor/doctor.h"
#include "tools/tandem/serve/ports.h"
#include "tools/tandem/serve/runtime_lock.h"
#include "tools/tandem/supervisor/supervisor.h"
#include "tools/tandem/supervisor/supervisor_metrics.h"

namespace tandem {
namespace {

// The gateway of a `tandem serve` that was killed lets its requests end first.
constexpr absl::Duration kStalePatience = absl::Seconds(40);

void Say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

// The cluster to start, and where to look while it starts.
void SayStart(const ClusterOptions& options, const std::vector<ServiceSpec>& services) {
  const auto name = [](std::string* out, const ServiceSpec& service) {
    out->append(service.process.name);
  };
  Say(absl::StrFormat("starting %s: %s\n  logs: %s", options.model,
                      absl::StrJoin(services, ", ", name), options.log_dir));
}

void SayReady(const ServeFlags& flags, const ClusterOptions& options,
              const v1::GetStatusResponse& status) {
  const std::string port = options.port != 0 ? absl::StrFormat(", 127.0.0.1:%d", options.port) : "";
  Say(absl::StrFormat("ready: %s\n  placement: %s\n  gRPC: %s%s", options.model, status.placement(),
                      GatewayTarget(options), port));
  const gateway::HttpFlags& http = flags.gateway.http;
  if (options.http != gateway::kHttpOff) {
    const bool tls = !http.server.tls_certificate.empty();
    const bool open = http.api_keys.empty() && !IsLoopback(options.http);
    Say(absl::StrFormat("  HTTP: %s://%s%s", tls ? "https" : "http", options.http,
                        open ? " (open: whoever reaches it may use the model)" : ""));
  }
  if (!status.placement_notice().empty()) Say("  notice: " + status.placement_notice());
}

// Prints each phase of the start, waits for readiness and announces it, unless the
// cluster is going down.  FAILED_PRECONDITION: the gateway says that it never will be ready.
absl::Status Announce(const ServeFlags& flags, const ClusterOptions& options,
                      Supervisor& supervisor, const std::atomic<bool>& stopping) {
  const auto stub = MakeGenerationStub(GatewayTarget(options));
  std::string said;
  while (!stopping) {
    const auto status = WaitReady(*stub, absl::Seconds(1));
    if (absl::IsFailedPrecondition(status.status())) return status.status();
    if (status.ok()) {
      supervisor.MarkReady();
      SayReady(flags, options, *status);
      break;
    }
    if (stopping) break;
    const auto now = FetchStatus(*stub, absl::Milliseconds(100));
    const std::string detail =
        now.ok() ? now->detail() : std::string("waiting for the gateway to answer");
    if (detail.empty() || detail == said) continue;
    said = detail;
    Say("  " + said);
  }
  return absl::OkStatus();
}

// The log of this process goes to serve.log too, while this lives.
class OwnLog {
 public:
  static absl::StatusOr<std::unique_ptr<OwnLog>> Begin(LogCollector& logs,
                                                       const std::string& log_dir) {
    TANDEM_ASSIGN_OR_RETURN(const int fd, logs.Add(log_dir + "/serve.log"));
    CopyLogTo(fd);
    return std::make_unique<OwnLog>();
  }
  ~OwnLog() { CopyLogTo(-1); }
};

// The runtime directory of a command's cluster.  If the command was killed, by Ctrl-C for example,
// the kernel has sent SIGTERM, and the directory goes with this.
class OwnedDirectory {
 public:
  explicit OwnedDirectory(pid_t owner) : owner_(owner) {
    if (owner_ == 0) return;
    // The supervisor reads signals later; until then they must not end this process.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }
  ~OwnedDirectory() {
    if (path_.empty() || owner_ == 0 || ::getppid() == owner_) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  OwnedDirectory(const OwnedDirectory&) = delete;
  OwnedDirectory& operator=(const OwnedDirectory&) = delete;
  // REQUIRES this process holds the lock of the directory.
  void Adopt(const std::string& path) { path_ = path; }

 private:
  const pid_t owner_;
  std::string path_;
};

absl::Status Serve(const ServeFlags& flags) {
  OwnedDirectory directory(flags.owner);  // goes after everything that uses its files
  const absl::StatusOr<ClusterOptions> resolved = ResolveServeFlags(flags);
  if (!resolved.ok()) return UsageError(std::string(resolved.status().message()));
  ClusterOptions options = *resolved;
  if (options.gpu_devices == std::vector<std::string>{kAllGpus}) {
    TANDEM_ASSIGN_OR_RETURN(
        options.gpu_devices,
        ListedGpus(OutputOf({options.bin_dir + "/tandem-gpu-worker", "--list", "--gpu",
                             std::string(GpuPolicyName(options.gpu))})));
  }
  TANDEM_ASSIGN_OR_RETURN(options.http, ChoosePort("--http", options.http));
  TANDEM_RETURN_IF_ERROR(MakeDirectories(options));
  // Before anything in the directory changes: it may be another cluster's.
  TANDEM_ASSIGN_OR_RETURN(const RuntimeLock lock,
                          RuntimeLock::Take(options.runtime_dir, options.log_dir));
  directory.Adopt(options.runtime_dir);
  TANDEM_ASSIGN_OR_RETURN(auto services, PlanCluster(options));
  TANDEM_ASSIGN_OR_RETURN(const bool waited,
                          AwaitStaleServices(options.runtime_dir, kStalePatience, Say));
  // Their pages for Prometheus may outlive their sockets by a moment.
  TANDEM_RETURN_IF_ERROR(
      AwaitPorts(WantedPorts(options), waited ? absl::Seconds(5) : absl::ZeroDuration()));
  SayStart(options, services);
  TANDEM_ASSIGN_OR_RETURN(const auto supervisor,
                          Supervisor::Create(std::move(services), {.rotation = options.rotation}));
  TANDEM_ASSIGN_OR_RETURN(const auto own_log, OwnLog::Begin(supervisor->logs(), options.log_dir));
  TANDEM_ASSIGN_OR_RETURN(
      const auto metrics,
      MetricsServer::StartIf(
          options.metrics ? MetricsAddress(options, MetricsPorts::kSupervisor) : "",
          /*allow_remote=*/false,
          [&supervisor](MetricSamples& samples) { AddSupervisorMetrics(*supervisor, samples); }));
  TANDEM_RETURN_IF_ERROR(supervisor->Start());
  std::atomic<bool> stopping = false;
  absl::Status readiness;
  std::thread announcer([&] {
    readiness = Announce(flags, options, *supervisor, stopping);
    if (!readiness.ok()) supervisor->RequestStop();
  });
  const absl::Status status = supervisor->Run();
  stopping = true;
  announcer.join();
  return readiness.ok() ? status : readiness;
}

}  // namespace

std::function<int()> AddServeCommand(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command =
      app.add_subcommand("serve", "Start the four services, keep them running, drain on Ctrl-C");
  AddServeFlags(*command, *flags);
  return [flags] {
    InitLogging("serve");
    RouteLibraryLogs();
    if (flags->cluster.options.log_format == "json") SetLogFormat(LogFormat::kJson);
    const absl::Status status = Serve(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
