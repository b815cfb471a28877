#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/metrics/metrics_server.h"
#include "tools/tandem/address.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/cluster_flags.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/supervisor/supervisor.h"
#include "tools/tandem/supervisor/supervisor_metrics.h"

namespace tandem {
namespace {

struct ServeFlags {
  ClusterFlags cluster;
  std::vector<std::string> workers, layers;
  std::string tls_cert, tls_key, tls_ca;
  bool allow_remote = false;
  std::string http = "127.0.0.1:8080";
  std::string http_tls_cert, http_tls_key, http_api_keys;
  std::vector<std::string> http_cors, http_names;
  std::string http_threads, http_connections, http_body_bytes;  // as the gateway takes them
  std::string otlp, trace_sample, trace_keep;                   // as the gateway takes them
};

void AddHttpFlags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--http", flags.http, "HTTP on this ADDRESS:PORT, or off")
      ->capture_default_str();
  command.add_option("--http-tls-cert", flags.http_tls_cert, "PEM file: serve HTTPS with this");
  command.add_option("--http-tls-key", flags.http_tls_key, "PEM file: the certificate's key");
  command.add_option(
      "--http-api-keys", flags.http_api_keys,
      "File of API keys (docs/rest.md).  It and the two before are read again at SIGHUP");
  command.add_option("--http-cors", flags.http_cors,
                     "Origin whose pages may call, or *; repeat for each");
  command.add_option("--http-name", flags.http_names,
                     "Name the server goes by beside localhost; repeat for each");
  command.add_option("--http-threads", flags.http_threads, "Threads for connections; default: 1")
      ->check(CLI::Range(1u, 16u));
  command
      .add_option("--http-connections", flags.http_connections,
                  "Connections at a time; default: 4096")
      ->check(CLI::Range(1u, 1000000u));
  command
      .add_option("--http-body-bytes", flags.http_body_bytes,
                  "Longest request body; default: 16777216")
      ->check(CLI::Range(size_t{1024}, size_t{1} << 30));
}

void AddTraceFlags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--otlp", flags.otlp,
                     "Collector of traces, http://HOST:4318/v1/traces (docs/tracing.md)");
  command
      .add_option("--trace-sample", flags.trace_sample,
                  "Share of the requests exported whose clients do not say; default: all")
      ->check(CLI::Range(0.0, 1.0));
  command
      .add_option("--trace-keep", flags.trace_keep,
                  "Requests whose traces are kept for `tandem trace`; default: 64")
      ->check(CLI::Range(0u, 100000u));
}

// As the gateway takes them.
std::vector<std::string> GatewayArguments(const ServeFlags& flags) {
  std::vector<std::string> arguments;
  const auto add = [&arguments](const char* flag, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
  };
  add("--http-tls-cert", flags.http_tls_cert);
  add("--http-tls-key", flags.http_tls_key);
  add("--http-api-keys", flags.http_api_keys);
  add("--http-threads", flags.http_threads);
  add("--http-connections", flags.http_connections);
  add("--http-body-bytes", flags.http_body_bytes);
  add("--otlp", flags.otlp);
  add("--trace-sample", flags.trace_sample);
  add("--trace-keep", flags.trace_keep);
  for (const std::string& origin : flags.http_cors) add("--http-cors", origin);
  for (const std::string& name : flags.http_names) add("--http-name", name);
  return arguments;
}

void AddHostFlags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--worker", flags.workers,
                     "A worker on another host: tls://HOST:PORT (docs/hosts.md); repeat for each");
  command.add_option("--layers", flags.layers,
                     "WORKER=FIRST-LAST: layers of a GPU worker, by its name (gpu0 is this "
                     "machine's); repeat until every layer has one; default: by memory");
  command.add_option("--tls-cert", flags.tls_cert,
                     "PEM file: the certificate shown to other hosts' workers");
  command.add_option("--tls-key", flags.tls_key, "PEM file: the certificate's key");
  command.add_option("--tls-ca", flags.tls_ca, "PEM file: who signs the other hosts' certificates");
  command.add_flag("--allow-remote", flags.allow_remote,
                   "Take tcp://HOST:PORT for a worker: neither encrypted nor authenticated");
}

// As the gateway takes them.
std::vector<std::string> HostArguments(const ServeFlags& flags) {
  std::vector<std::string> arguments;
  const auto add = [&arguments](const char* flag, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
  };
  for (const std::string& worker : flags.workers) add("--worker", worker);
  for (const std::string& range : flags.layers) add("--layers", range);
  add("--tls-cert", flags.tls_cert);
  add("--tls-key", flags.tls_key);
  add("--tls-ca", flags.tls_ca);
  if (flags.allow_remote) arguments.emplace_back("--allow-remote");
  return arguments;
}

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
      std::fprintf(stderr, "  HTTP: %s://%s\n", flags.http_tls_cert.empty() ? "http" : "https",
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
  TANDEM_ASSIGN_OR_RETURN(ClusterOptions options, ResolveClusterFlags(flags.cluster));
  options.http = flags.http;
  options.gateway_arguments = GatewayArguments(flags);
  options.host_arguments = HostArguments(flags);
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
  flags->cluster.options.runtime_dir = DefaultRuntimeDir();
  flags->cluster.options.port = 50051;
  AddClusterFlags(*command, flags->cluster);
  command->get_option("--model")->required();
  command->set_config("--config", "", "Read flags from this file (TOML)");
  command->add_option("--runtime-dir", flags->cluster.options.runtime_dir, "Sockets and logs")
      ->capture_default_str();
  command->add_option("--log-dir", flags->cluster.options.log_dir,
                      "One file a service; default: RUNTIME_DIR/logs");
  command
      ->add_option("--port", flags->cluster.options.port,
                   "gRPC on 127.0.0.1; 0: the unix socket alone")
      ->capture_default_str();
  command
      ->add_option("--log-format", flags->cluster.options.log_format,
                   "Lines of every service's log: text (key=value) or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  AddHttpFlags(*command, *flags);
  AddTraceFlags(*command, *flags);
  command->add_flag("--metrics", flags->cluster.options.metrics,
                    "Pages for Prometheus on loopback: gateway 9464, GPU 9465, NPU 9466, loader "
                    "9467, this process 9468");
  command
      ->add_option("--metrics-port", flags->cluster.options.metrics_port,
                   "The gateway's page is here instead, and the others follow it")
      ->check(CLI::Range(1, 65000));
  AddHostFlags(*command, *flags);
  return [flags] {
    InitLogging("serve");
    if (flags->cluster.options.log_format == "json") SetLogFormat(LogFormat::kJson);
    const absl::Status status = Serve(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
