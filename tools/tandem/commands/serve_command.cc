#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/metrics/metrics_server.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/serve_flags.h"
#include "tools/tandem/supervisor/supervisor.h"
#include "tools/tandem/supervisor/supervisor_metrics.h"

namespace tandem {
namespace {

// Says once a second what is being done, waits for readiness and announces it, unless the cluster
// is going down.  FAILED_PRECONDITION: the gateway says that it never will be ready.
absl::Status Announce(const ServeFlags& flags, const ClusterOptions& options,
                      const std::atomic<bool>& stopping) {
  const std::string target = GatewayTarget(options);
  const auto stub = MakeGenerationStub(target);
  std::string said;
  while (!stopping) {
    const auto status = WaitReady(*stub, absl::Seconds(1));
    if (absl::IsFailedPrecondition(status.status())) return status.status();
    if (!status.ok()) {
      const auto now = FetchStatus(*stub, absl::Milliseconds(100));
      if (!now.ok() || now->detail().empty() || now->detail() == said) continue;
      said = now->detail();
      std::fprintf(stderr, "  %s\n", said.c_str());
      continue;
    }
    std::fprintf(stderr, "ready: %s\n  placement: %s\n  gRPC: %s%s\n", options.model.c_str(),
                 status->placement().c_str(), target.c_str(),
                 options.port != 0 ? absl::StrFormat(", 127.0.0.1:%d", options.port).c_str() : "");
    if (options.http != "off") {
      std::fprintf(stderr, "  HTTP: %s://%s\n", flags.gateway.http.server.tls_certificate.empty() ? "http" : "https",
                   options.http.c_str());
    }
    if (!status->placement_notice().empty()) {
      std::fprintf(stderr, "  notice: %s\n", status->placement_notice().c_str());
    }
    break;
  }
  return absl::OkStatus();
}

absl::Status Serve(const ServeFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const ClusterOptions options, ResolveServeFlags(flags));
  TANDEM_ASSIGN_OR_RETURN(auto services, PlanCluster(options));
  TANDEM_ASSIGN_OR_RETURN(const auto supervisor, Supervisor::Create(std::move(services), {}));
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
    readiness = Announce(flags, options, stopping);
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
    if (flags->cluster.options.log_format == "json") SetLogFormat(LogFormat::kJson);
    const absl::Status status = Serve(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
