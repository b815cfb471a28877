#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/flags/flag_checks.h"
#include "services/common/pull/model_store.h"
#include "services/loader/convert/convert.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/source/weight_mix.h"
#include "tools/tandem/commands/command.h"

namespace tandem {
namespace {

constexpr double kMiB = 1 << 20;

struct ConvertFlags {
  std::string source;
  std::string destination;
  std::string type = "q4_k_m";
  std::string embedding;
  loader::ConvertOptions options;
};

// "models/gemma-3-1b-it/" -> "gemma-3-1b-it".
std::string NameOf(const std::string& source) {
  const std::filesystem::path path = std::filesystem::path(source).lexically_normal();
  const std::filesystem::path last = path.has_filename() ? path : path.parent_path();
  return last.extension() == ".gguf" ? last.stem().string() : last.filename().string();
}

bool PrintProgress(const loader::ConvertProgress& progress) {
  std::fprintf(stderr, "\r%.0f of %.0f MiB", static_cast<double>(progress.done_bytes) / kMiB,
               static_cast<double>(progress.total_bytes) / kMiB);
  return true;
}

absl::Status Convert(ConvertFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(flags.options.mix, loader::ParseWeightMix(flags.type));
  if (!flags.embedding.empty()) {
    TANDEM_ASSIGN_OR_RETURN(flags.options.mix.embedding, loader::ParseDType(flags.embedding));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string path, pull::PathOrPulled(flags.source));
  TANDEM_ASSIGN_OR_RETURN(const auto source, loader::OpenModelSource(path));
  if (flags.options.name.empty()) flags.options.name = NameOf(path);
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const auto file = loader::ConvertToGguf(*source, flags.destination, flags.options,
                                          terminal ? PrintProgress : nullptr);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  TANDEM_RETURN_IF_ERROR(file.status());
  std::printf("%s: %.1f MiB, %s, %.2f bits a weight\n", flags.destination.c_str(),
              static_cast<double>(file->bytes) / kMiB, flags.options.mix.Name().c_str(),
              file->bits_per_weight);
  return absl::OkStatus();
}

}  // namespace

std::function<int()> AddConvertCommand(CLI::App& app) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* command = app.add_subcommand("convert", "Write a model as a GGUF file");
  const std::vector<std::string> types = loader::WeightMixNames();
  command
      ->add_option("source", flags->source,
                   "A safetensors folder, a GGUF file, or synthetic:gemma3-1b?type=bf16")
      ->required();
  command->add_option("destination", flags->destination, "The GGUF file to write")->required();
  command
      ->add_option("--type", flags->type,
                   "Number format of the matrices: " + absl::StrJoin(types, ", "))
      ->type_name("TEXT:{" + absl::StrJoin(types, ",") + "}")
      ->check(CheckedBy([](const std::string& type) { return loader::ParseWeightMix(type); }))
      ->capture_default_str();
  command->add_option(
      "--embedding", flags->embedding,
      "Of the embedding and the head; by default q6_k, or the type if it is larger");
  command->add_option("--name", flags->options.name, "The model's name; by default the source's");
  command->add_option("--threads", flags->options.num_threads, "0: one per core")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--force", flags->options.overwrite, "Replace a file that is there");
  command->add_flag("--requantise", flags->options.requantise,
                    "Allow a source that is quantised already");
  return [flags] {
    const absl::Status status = Convert(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
