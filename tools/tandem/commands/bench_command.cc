#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/energy/energy.h"
#include "services/common/flags/flag_checks.h"
#include "services/loader/synthetic/synthetic_spec.h"
#include "tools/kernel_report/chip.h"
#include "tools/tandem/address.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/bench/compare.h"
#include "tools/tandem/bench/measure.h"
#include "tools/tandem/commands/cluster_flags.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/own_cluster.h"
#include "tools/tandem/commands/predict.h"
#include "tools/tandem/commands/request_flags.h"

namespace tandem {
namespace {

struct BenchFlags {
  ClusterFlags cluster;
  BenchOptions bench;
  GatewayAddress address;
  bool json = false;
  bool csv = false;
  std::string compare;  // a file; empty: with none
  std::string predict;  // a chip; empty: measure
};

// Sensors are of this machine: no use for a cluster elsewhere.
bool IsThisMachine(const std::string& address) {
  const size_t scheme = address.find("://");
  const std::string host = scheme == std::string::npos ? address : address.substr(scheme + 3);
  for (const char* prefix : {"unix:", "127.", "localhost", "[::1]"}) {
    if (host.starts_with(prefix)) return true;
  }
  return false;
}

std::unique_ptr<EnergyMeter> MakeEnergyMeter(const std::string& address, std::string& why_not) {
  if (!IsThisMachine(address)) {
    why_not = "the cluster is on another machine";
    return nullptr;
  }
  EnergySensors sensors = FindSysfsSensors("/");
  EnergySensors nvml = FindNvmlSensors();
  std::move(nvml.found.begin(), nvml.found.end(), std::back_inserter(sensors.found));
  sensors.refused.insert(sensors.refused.end(), nvml.refused.begin(), nvml.refused.end());
  if (!sensors.found.empty()) return std::make_unique<EnergyMeter>(std::move(sensors.found));
  why_not = sensors.refused.empty()
                ? "no sensor: neither amdgpu's, nor the processor's (RAPL), nor NVIDIA's"
                : absl::StrJoin(sensors.refused, "; ");
  return nullptr;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrFormat("--compare %s: cannot be read", path));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::Status PredictInstead(const BenchFlags& flags) {
  const ClusterOptions& cluster = flags.cluster.options;
  if (cluster.model.empty()) {
    return UsageError("--predict " + flags.predict + ": --model says which model's steps");
  }
  return Predict({.chip = flags.predict,
                  .model = cluster.model,
                  .max_rows = cluster.max_rows,
                  .kv_type = cluster.kv_type,
                  .prompts = flags.bench.prompts,
                  .batches = flags.bench.batches,
                  .depths = flags.bench.depths,
                  .json = flags.json},
                 ExecutableDirectory());
}

absl::Status Bench(const BenchFlags& flags) {
  if (!flags.predict.empty()) return PredictInstead(flags);
  std::string earlier;
  if (!flags.compare.empty()) {
    TANDEM_ASSIGN_OR_RETURN(earlier, ReadFile(flags.compare));
    // Before minutes of measuring.
    TANDEM_RETURN_IF_ERROR(Compare(earlier, flags.compare, {}).status());
  }
  std::unique_ptr<OwnCluster> cluster;
  GatewayAddress address = flags.address;
  if (const std::string& model = flags.cluster.options.model; !model.empty()) {
    if (loader::IsSyntheticName(model)) {
      TANDEM_RETURN_IF_ERROR(loader::ParseSyntheticName(model).status());
    }
    ClusterFlags own = flags.cluster;
    for (const uint32_t batch : flags.bench.batches) {
      own.options.max_sequences = std::max(own.options.max_sequences, batch);
    }
    TANDEM_ASSIGN_OR_RETURN(cluster, OwnCluster::Start(own));
    address = GatewayAddress(cluster->address());
  }
  TANDEM_ASSIGN_OR_RETURN(const auto stub, OpenGateway(address));
  MeasureHooks hooks;
  const std::unique_ptr<EnergyMeter> energy = MakeEnergyMeter(address.target, hooks.no_energy);
  hooks.energy = energy.get();
  if (::isatty(STDERR_FILENO) != 0) {
    hooks.progress = [](const std::string& what) {
      std::fprintf(stderr, "\r\033[K%s", what.c_str());
    };
  }
  if (cluster != nullptr) {
    TANDEM_RETURN_IF_ERROR(cluster->AwaitReady(*stub, absl::Minutes(30), hooks.progress).status());
  }
  const absl::StatusOr<BenchReport> report = Measure(*stub, flags.bench, hooks);
  if (hooks.progress) std::fputs("\r\033[K", stderr);
  TANDEM_RETURN_IF_ERROR(Explain(report.status(), address));
  std::fputs((flags.json  ? ReportAsJson(*report)
              : flags.csv ? ReportAsCsv(*report)
                          : ReportAsMarkdown(*report))
                 .c_str(),
             stdout);
  if (flags.compare.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::string text, Compare(earlier, flags.compare, *report));
  // Beside the output for programs.
  std::fprintf(flags.json || flags.csv ? stderr : stdout, "\n%s", text.c_str());
  return absl::OkStatus();
}

}  // namespace

std::function<int()> AddBenchCommand(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure a running cluster, or with --model one started for the purpose");
  command->footer(
      "Tests are named as llama-bench names them: pp512 is a prompt of 512 tokens, tg128 the "
      "making\n"
      "of 128, tg128@d4096 the same with 4096 positions before, b8 behind a name 8 sequences at a\n"
      "time, whose tokens are counted together while all of them decode. t/s is the mean and the\n"
      "standard deviation of the repetitions. GB/s is what the steps must read (weights, keys and\n"
      "values) and TFLOP/s their products, also as shares of what small kernels reach on the same\n"
      "device, in as much memory as a step reads. device % is the share of the time that the\n"
      "devices' own clocks count, queued %\n"
      "that of steps handed over while the one before ran. What a device does not report, energy\n"
      "for one, is said to be missing.\n"
      "img4 are requests with 4 new pictures (--images), and again the same with another question\n"
      "about them: nothing is encoded then, and prompts begin behind what they share.\n"
      "--predict needs a build of the sources and AMD's compiler (scripts/fetch-radv); "
      "docs/radeon.md\n"
      "says how it predicts, and how far it was from what was measured.");
  AddClusterFlags(*command, flags->cluster);
  AddAddressFlag(*command, flags->address);
  const auto add_list = [command](const char* name, std::vector<uint32_t>& list, CLI::Range range,
                                  const char* what) {
    command->add_option(name, list, what)->delimiter(',')->check(range)->capture_default_str();
  };
  const CLI::Range counts(0, 1 << 20);
  add_list("--prompt", flags->bench.prompts, counts, "Tokens of a prompt, one or more; 0: no test");
  add_list("--tokens", flags->bench.tokens, counts,
           "Tokens made by each sequence, one or more; 0: no test");
  add_list("--batch", flags->bench.batches, CLI::Range(1, 4096), "Sequences at a time");
  add_list("--depth", flags->bench.depths, counts,
           "Positions that a sequence holds before it makes tokens");
  CLI::Option* images = command->add_option("--images", flags->bench.images,
                                            "Pictures of a request, one or more: measures requests "
                                            "with pictures too; --batch requests at a time");
  images->delimiter(',')->check(CLI::Range(0, 64));
  command
      ->add_option("--image-side", flags->bench.image_side,
                   "Width and height of these pictures, pixels")
      ->check(CLI::Range(1, 4096))
      ->needs(images)
      ->capture_default_str();
  command->add_option("--repetitions", flags->bench.repetitions, "Of every test")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("!--no-warm-up", flags->bench.warm_up, "Measure from the first run on");
  command->add_option("--seed", flags->bench.seed, "Of the random prompts")->capture_default_str();
  CLI::Option* json = command->add_flag("--json", flags->json, "Print JSON");
  CLI::Option* csv = command->add_flag("--csv", flags->csv, "Print CSV")->excludes(json);
  CLI::Option* compare = command->add_option(
      "--compare", flags->compare,
      "A file that --json printed earlier: ratios, and which exceed the spread");
  command
      ->add_option("--predict", flags->predict,
                   "Measure nothing: predict the steps of --model on a chip that is not here, one "
                   "of " +
                       report::ChipNames())
      ->check(CheckedBy(report::FindChip))
      ->excludes(csv)
      ->excludes(compare);
  return [flags] {
    const absl::Status status = Bench(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
