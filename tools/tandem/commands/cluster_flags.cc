#include "tools/tandem/commands/cluster_flags.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/flags/flag_checks.h"
#include "services/common/picture/pan_and_scan.h"
#include "services/common/plan/drafters.h"
#include "tools/tandem/commands/command.h"

namespace tandem {

void AddClusterFlags(CLI::App& command, ClusterFlags& flags) {
  ClusterOptions& options = flags.options;
  // Comes before --model, which is looked for there, and holds for the gateway's --http-pull too.
  command.add_option_function<std::string>(
      "--models-dir",
      [](const std::string& folder) { ::setenv("TANDEM_MODELS", folder.c_str(), 1); },
      "Folder of pulled models; default: TANDEM_MODELS, else ~/.local/share/tandem/models");
  command
      .add_option("--model", options.model,
                  "GGUF file, safetensors folder, name of a pulled model (gemma3:27b), or "
                  "synthetic:gemma3-27b?type=q4_0")
      ->check(CheckedBy(FindModel));
  command
      .add_option("--mmproj", options.mmproj,
                  "GGUF file of the model's vision encoder, or none.  Default: the one beside the "
                  "model")
      ->check(CheckedBy(FindMmproj));
  command.add_option("--npu", flags.npu, kNpuPolicyHelp)
      ->type_name("TEXT:{auto,require,prefer,emulate,off}")
      ->check(CheckedBy(ParseNpuPolicy))
      ->capture_default_str();
  command.add_flag("--out-on-npu", options.out_on_npu, "Run Out beside Attend");
  command.add_flag("--npu-prompts", options.npu_prompts, kNpuPromptsHelp);
  command
      .add_option("--gpu", flags.gpu,
                  "require (a GPU), prefer (else a software driver, and says so) or software")
      ->type_name("TEXT:{require,prefer,software}")
      ->check(CheckedBy(ParseGpuPolicy))
      ->capture_default_str();
  command.add_option("--gpu-device", options.gpu_device,
                     "Vulkan device: index or part of its name");
  command
      .add_option("--tune", options.tune,
                  "Tables of the fastest kernels: off, first-start (read the model's, measure a "
                  "moment where none is) or now")
      ->check(CLI::IsMember({"off", "first-start", "now"}))
      ->capture_default_str();
  command
      .add_option("--tune-seconds", options.tune_seconds, "Of the device's time, for --tune now")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command.add_option("--max-sequences", options.max_sequences, "Requests running at a time")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  command.add_option("--max-rows", options.max_rows, "Rows in one step")
      ->check(CLI::Range(1u, 65535u))
      ->capture_default_str();
  command.add_option("--context", options.context_len, "Longest context; 0: the model's");
  command.add_option("--kv-tokens", options.kv_tokens,
                     "Positions in the KV cache; 0: by the memory there is");
  command
      .add_option("--kv-type", options.kv_type,
                  "Numbers of the KV cache: f16, or q8_0 in 17/32 of the bytes")
      ->check(CLI::IsMember({"f16", "q8_0"}))
      ->capture_default_str();
  command
      .add_option("--prefix-cache", options.prefix_cache,
                  "on: the KV of prompt prefixes is kept while there is room, for requests of the "
                  "same API key with the same prefix; shared: of all keys; or off")
      ->check(CLI::IsMember({"on", "shared", "off"}))
      ->capture_default_str();
  command.add_option("--speculate", options.speculate, kSpeculateHelp)
      ->check(CheckedBy(ParseDrafters));
  command
      .add_option("--draft", options.draft,
                  "A smaller model with the same vocabulary, as for --model: it guesses tokens "
                  "ahead")
      ->check(CheckedBy(FindModel));
  command.add_option("--draft-device", options.draft_device, kDraftDeviceHelp)
      ->capture_default_str();
  command.add_flag("--pan-and-scan", options.pan_and_scan, kPanAndScanHelp);
  command.add_flag("!--no-queued-steps", options.queue_steps,
                   "Let each step wait until the tokens of the one before it are decided");
  command.add_flag("!--no-packed-cache", options.packed_cache,
                   "Keep no packed weights under the cache directory; every start packs again");
}

std::vector<std::string> ClusterArguments(const ClusterFlags& flags) {
  const ClusterOptions& options = flags.options;
  std::vector<std::string> arguments = {
      "--model",         options.model,
      "--npu",           flags.npu,
      "--gpu",           flags.gpu,
      "--tune",          options.tune,
      "--tune-seconds",  absl::StrFormat("%g", options.tune_seconds),
      "--max-sequences", absl::StrFormat("%d", options.max_sequences),
      "--max-rows",      absl::StrFormat("%d", options.max_rows),
      "--context",       absl::StrFormat("%d", options.context_len),
      "--kv-tokens",     absl::StrFormat("%d", options.kv_tokens),
      "--kv-type",       options.kv_type,
      "--prefix-cache",  options.prefix_cache,
      "--draft-device",  options.draft_device};
  const auto add_text = [&arguments](const char* name, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {name, value});
  };
  add_text("--mmproj", options.mmproj);
  add_text("--gpu-device", options.gpu_device);
  add_text("--speculate", options.speculate);
  add_text("--draft", options.draft);
  const auto add_flag = [&arguments](const char* name, bool given) {
    if (given) arguments.emplace_back(name);
  };
  add_flag("--out-on-npu", options.out_on_npu);
  add_flag("--npu-prompts", options.npu_prompts);
  add_flag("--pan-and-scan", options.pan_and_scan);
  add_flag("--no-queued-steps", !options.queue_steps);
  add_flag("--no-packed-cache", !options.packed_cache);
  return arguments;
}

absl::StatusOr<ClusterOptions> ResolveClusterFlags(const ClusterFlags& flags) {
  ClusterOptions options = flags.options;
  TANDEM_ASSIGN_OR_RETURN(options.npu, ParseNpuPolicy(flags.npu));
  if (options.npu_prompts) TANDEM_RETURN_IF_ERROR(RequireNpuForPrompts(options.npu));
  TANDEM_ASSIGN_OR_RETURN(options.gpu, ParseGpuPolicy(flags.gpu));
  TANDEM_RETURN_IF_ERROR(ChooseDrafters(options.speculate, options.draft).status());
  options.bin_dir = ExecutableDirectory();
  if (options.log_dir.empty()) options.log_dir = options.runtime_dir + "/logs";
  return options;
}

}  // namespace tandem
