#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "services/common/flags/flag_checks.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/cluster_flags.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/own_cluster.h"

namespace tandem {
namespace {

constexpr absl::Duration kLoadTime = absl::Minutes(30);

struct TuneFlags {
  ClusterFlags cluster;
  double seconds = 30;
  bool json = false;
};

// What was tried and chosen, as the table tells it.
std::string Describe(const nlohmann::ordered_json& table) {
  TextTable text({false, false, true, false});
  text.Add({"SETTING", "STEPS", "CHOSEN", "TIME BY VALUE"});
  for (const auto& trial : table.at("trials")) {
    std::vector<std::string> cases, times;
    for (const auto& name : trial.at("cases")) cases.push_back(name.get<std::string>());
    for (const auto& [value, time] : trial.at("time").items()) {
      times.push_back(absl::StrFormat("%s: %.3f", value, time.get<double>()));
    }
    text.Add({trial.at("setting").get<std::string>(), absl::StrJoin(cases, ","),
              trial.at("chosen").dump(), absl::StrJoin(times, "  ")});
  }
  return text.Print();
}

absl::Status PrintTable(const std::string& path, bool as_json) {
  std::ifstream file(path);
  const auto table = nlohmann::ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (table.is_discarded()) return absl::DataLossError(path + ": not a table of tuning");
  if (as_json) {
    std::printf("%s\n", table.dump(2).c_str());
    return absl::OkStatus();
  }
  try {
    std::printf("%s\n%s, %s\nkept in %s\n", Describe(table).c_str(),
                table.at("device").get<std::string>().c_str(),
                table.at("driver").get<std::string>().c_str(), path.c_str());
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(path + ": " + error.what());
  }
  return absl::OkStatus();
}

absl::Status Tune(const TuneFlags& flags) {
  ClusterFlags own = flags.cluster;
  own.npu = "off";
  own.options.tune = "now";
  own.options.tune_seconds = flags.seconds;
  TANDEM_ASSIGN_OR_RETURN(const auto cluster, OwnCluster::Start(own));
  if (::isatty(STDERR_FILENO) != 0) {
    std::fprintf(stderr, "loading %s and measuring, %g s of the device's time\n",
                 own.options.model.c_str(), flags.seconds);
  }
  const auto stub = MakeGenerationStub(GatewayAddress(cluster->address()));
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  TANDEM_ASSIGN_OR_RETURN(
      const auto status, cluster->AwaitReady(*stub, kLoadTime, [terminal](const std::string& what) {
        if (terminal) std::fprintf(stderr, "  %s\n", what.c_str());
      }));
  if (status.workers().empty()) return absl::InternalError("the cluster has no worker");
  const std::string& tuning = status.workers(0).tuning();
  constexpr std::string_view kTuned = "tuned: ";
  if (!tuning.starts_with(kTuned)) {
    return absl::InternalError(
        absl::StrFormat("%s: no table was kept: %s", status.workers(0).name(), tuning));
  }
  return PrintTable(tuning.substr(kTuned.size()), flags.json);
}

}  // namespace

std::function<int()> AddTuneCommand(CLI::App& app) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* command = app.add_subcommand(
      "tune", "Measure the kernels' variants on the GPU for a model, and keep the fastest");
  command->footer(
      "Starts a cluster for the purpose and stops it. Each setting is given each of its values;\n"
      "times are relative to the value in force before, over steps of the rows that are named.\n"
      "The table is kept under the cache folder for this device, driver, version and the shapes "
      "of\n"
      "this model, and is read at every start. docs/tuning.md says more.");
  command
      ->add_option("--model", flags->cluster.options.model,
                   "GGUF file, safetensors folder, or synthetic:gemma3-27b?type=q4_0")
      ->check(CheckedBy(FindModel))
      ->required();
  command->add_option("--gpu-device", flags->cluster.options.gpu_device,
                      "Vulkan device: index or part of its name");
  command->add_option("--max-rows", flags->cluster.options.max_rows, "Rows in one step")
      ->capture_default_str();
  command->add_option("--seconds", flags->seconds, "Of the device's time, at most")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print the table as it is kept");
  return [flags] {
    const absl::Status status = Tune(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
