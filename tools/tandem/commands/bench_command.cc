#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/loader/synthetic/synthetic_spec.h"
#include "tools/tandem/address.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/bench/measure.h"
#include "tools/tandem/commands/cluster_flags.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/supervisor/process.h"

namespace tandem {
namespace {

struct BenchFlags {
  ClusterFlags cluster;
  BenchOptions bench;
  std::string address = DefaultGatewayAddress();
  bool json = false;
};

// A cluster of this command's own, in a temporary directory; stopped and removed at the end.
class OwnCluster {
 public:
  static absl::StatusOr<std::unique_ptr<OwnCluster>> Start(const BenchFlags& flags) {
    std::string folder = (std::filesystem::temp_directory_path() / "tandem-bench.XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) {
      return absl::InternalError("no temporary directory at " + folder);
    }
    std::unique_ptr<OwnCluster> cluster(new OwnCluster(folder));
    const ClusterOptions& options = flags.cluster.options;
    ProcessSpec spec;
    spec.name = "serve";
    spec.argv = {ExecutableDirectory() + "/tandem",
                 "serve",
                 "--port",
                 "0",
                 "--runtime-dir",
                 folder,
                 "--model",
                 options.model,
                 "--npu",
                 flags.cluster.npu,
                 "--max-sequences",
                 absl::StrFormat("%d", options.max_sequences),
                 "--max-rows",
                 absl::StrFormat("%d", options.max_rows),
                 "--context",
                 absl::StrFormat("%d", options.context_len),
                 "--kv-tokens",
                 absl::StrFormat("%d", options.kv_tokens)};
    if (options.out_on_npu) spec.argv.emplace_back("--out-on-npu");
    if (!options.packed_cache) spec.argv.emplace_back("--no-packed-cache");
    if (!options.gpu_device.empty()) {
      spec.argv.insert(spec.argv.end(), {"--gpu-device", options.gpu_device});
    }
    spec.log_path = folder + "/serve.log";
    TANDEM_ASSIGN_OR_RETURN(cluster->pid_, StartProcess(spec));
    return cluster;
  }

  ~OwnCluster() {
    if (pid_ > 0) {
      ::kill(pid_, SIGTERM);
      ::waitpid(pid_, nullptr, 0);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string address() const { return absl::StrFormat("unix:%s/gateway.sock", folder_); }

 private:
  explicit OwnCluster(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
  pid_t pid_ = 0;
};

absl::Status Bench(const BenchFlags& flags) {
  std::unique_ptr<OwnCluster> cluster;
  std::string address = flags.address;
  if (const std::string& model = flags.cluster.options.model; !model.empty()) {
    if (loader::IsSyntheticName(model)) {
      TANDEM_RETURN_IF_ERROR(loader::ParseSyntheticName(model).status());
    }
    TANDEM_ASSIGN_OR_RETURN(cluster, OwnCluster::Start(flags));
    address = cluster->address();
  }
  const auto stub = MakeGenerationStub(address);
  TANDEM_ASSIGN_OR_RETURN(const BenchReport report, Measure(*stub, flags.bench));
  std::fputs((flags.json ? ReportAsJson(report) : ReportAsTable(report)).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

std::function<int()> AddBenchCommand(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure a running cluster, or with --model one started for the purpose");
  AddClusterFlags(*command, flags->cluster);
  command->add_option("--address", flags->address, "The gateway")->capture_default_str();
  command->add_option("--prompt", flags->bench.prompt_tokens, "Tokens in each prompt")
      ->capture_default_str();
  command->add_option("--tokens", flags->bench.generated_tokens, "Tokens in each answer")
      ->capture_default_str();
  command
      ->add_option("--sequences", flags->bench.sequences, "Streams at a time, one or more counts")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--repetitions", flags->bench.repetitions, "The median is reported")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--seed", flags->bench.seed, "Of the random prompts")->capture_default_str();
  command->add_flag("--json", flags->json, "Print JSON");
  return [flags] {
    const absl::Status status = Bench(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
