#include "tools/tandem/commands/serve_flags.h"

#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/flags/config_file.h"
#include "services/common/flags/flag_checks.h"
#include "services/common/flags/manual_page.h"
#include "tools/tandem/address.h"

namespace tandem {
namespace {

// The options that `add` adds to `command`.
std::vector<const CLI::Option*> Added(CLI::App& command, const std::function<void()>& add) {
  const size_t before = command.get_options().size();
  add();
  const std::vector<CLI::Option*> all = command.get_options();
  return {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()};
}

// The options that were given, as a command line.
std::vector<std::string> Arguments(const std::vector<const CLI::Option*>& options) {
  std::vector<std::string> arguments;
  for (const CLI::Option* option : options) {
    const std::string& name = option->get_lnames().front();
    for (const std::string& value : option->results()) {
      if (TakesValue(*option)) {
        arguments.insert(arguments.end(), {"--" + name, value});
      } else if (value == option->get_flag_value(name, "")) {
        arguments.push_back("--" + name);
      }
    }
  }
  return arguments;
}

void AddPlaceFlags(CLI::App& command, ClusterOptions& options) {
  command.add_option("--runtime-dir", options.runtime_dir, "Sockets and logs")
      ->capture_default_str();
  command.add_option("--log-dir", options.log_dir, "One file a service; default: RUNTIME_DIR/logs");
  command
      .add_option("--log-bytes", options.rotation.max_bytes,
                  "Longest log file: another is begun then, and old ones are SERVICE.log.1 and on")
      ->check(CLI::Range(uint64_t{4096}, uint64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--log-files", options.rotation.num_old, "Old log files kept for each service")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command
      .add_option("--log-format", options.log_format,
                  "Lines of every service's log: text (key=value) or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command.add_option("--port", options.port, "gRPC on 127.0.0.1; 0: the unix socket alone")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
}

// "all", or indices of devices.
absl::Status CheckGpus(const std::string& gpu) {
  const bool number = !gpu.empty() && gpu.find_first_not_of("0123456789") == std::string::npos;
  if (number || gpu == kAllGpus) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "'%s' is no GPU: all, or indices as `tandem-gpu-worker --list` shows them, is expected",
      gpu));
}

// INVALID_ARGUMENT: flags of GPUs that do not go together.
absl::Status CheckGpuFlags(const ClusterOptions& options) {
  const std::vector<std::string>& gpus = options.gpu_devices;
  const std::set<std::string> different(gpus.begin(), gpus.end());
  if (different.size() < gpus.size() || (different.contains(kAllGpus) && gpus.size() > 1)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--gpus %s: a GPU is named twice", absl::StrJoin(gpus, ",")));
  }
  if (!gpus.empty() && !options.gpu_device.empty()) {
    return absl::InvalidArgumentError("--gpus and --gpu-device: both name GPUs, give one of them");
  }
  if (options.split && options.replicas > 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--split is one replica over all GPUs, --replicas %d are several: give one of them",
        options.replicas));
  }
  return absl::OkStatus();
}

void AddReplicaFlags(CLI::App& command, ClusterOptions& options) {
  command
      .add_option(
          "--gpus", options.gpu_devices,
          "all, or INDEX[,INDEX...]: a worker on each of these GPUs, and a replica of the "
          "model on each worker (docs/replicas.md); `tandem-gpu-worker --list` shows them.  "
          "Default: one worker, on --gpu-device")
      ->delimiter(',')
      ->check(CheckedBy(CheckGpus));
  command
      .add_option(
          "--replicas", options.replicas,
          "Serve the model so many times, side by side: each replica has as many of the GPU "
          "workers, own ones before those of --worker; 0: one on each of --gpus")
      ->check(CLI::Range(0u, 256u))
      ->capture_default_str();
  command
      .add_option("--prompt-replicas", options.prompt_replicas,
                  "So many of the replicas, the first ones, compute prompts; the others decode")
      ->check(CLI::Range(0u, 255u))
      ->capture_default_str();
  command.add_flag(
      "--split", options.split,
      "Serve the model once, its layers split over all of --gpus: for a model that one "
      "GPU cannot hold");
}

void AddMetricsFlags(CLI::App& command, ClusterOptions& options) {
  CLI::Option* metrics =
      command.add_flag("--metrics", options.metrics,
                       "Pages for Prometheus on loopback: gateway 9464, GPU 9465, NPU 9466, loader "
                       "9467, this process 9468");
  command
      .add_option("--metrics-port", options.metrics_port,
                  "The gateway's page is here instead, and the others follow it; with --metrics")
      ->check(CLI::Range(1, 65000))
      ->needs(metrics);
}

}  // namespace

void AddServeFlags(CLI::App& command, ServeFlags& flags) {
  ClusterOptions& options = flags.cluster.options;
  options.runtime_dir = DefaultRuntimeDir();
  options.port = 50051;
  AddClusterFlags(command, flags.cluster);
  command.get_option("--model")->required();
  AddPlaceFlags(command, options);
  flags.http_options = Added(command, [&] {
    gateway::AddHttpFlags(command, flags.gateway.http);
    gateway::AddGrpcFlags(command, flags.gateway);
    gateway::AddNameFlags(command, flags.gateway.names);
    gateway::AddToolFlags(command, flags.gateway.tool_format);
    gateway::AddPlacementFlags(command, flags.gateway);
    gateway::AddQueueFlags(command, flags.gateway);
    gateway::AddTraceFlags(command, flags.gateway.trace);
  });
  // That one has a place of its own among a cluster's options.
  std::erase(flags.http_options, command.get_option("--http"));
  AddReplicaFlags(command, options);
  AddMetricsFlags(command, options);
  flags.host_options = Added(command, [&] { gateway::AddHostFlags(command, flags.gateway); });
  AddConfigFlag(command);
  command.add_option("--owner", flags.owner)->configurable(false)->group("");  // OwnCluster's
}

absl::StatusOr<ClusterOptions> ResolveServeFlags(const ServeFlags& flags) {
  TANDEM_RETURN_IF_ERROR(gateway::CheckHttpFlags(flags.gateway.http));
  TANDEM_ASSIGN_OR_RETURN(ClusterOptions options, ResolveClusterFlags(flags.cluster));
  options.http = flags.gateway.http.server.listen;
  options.gateway_arguments = Arguments(flags.http_options);
  options.host_arguments = Arguments(flags.host_options);
  TANDEM_RETURN_IF_ERROR(CheckGpuFlags(options));
  return options;
}

}  // namespace tandem
