#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/flags/flag_checks.h"
#include "services/common/pull/model_store.h"
#include "services/common/pull/pull.h"
#include "services/loader/convert/convert.h"
#include "services/loader/convert/convert_vision.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/source/weight_mix.h"
#include "services/loader/vision/vision_source.h"
#include "tools/tandem/commands/command.h"

namespace tandem {
namespace {

constexpr double kMiB = 1 << 20;

using Progress = std::function<bool(const loader::ConvertProgress&)>;

struct ConvertFlags {
  std::string source;
  std::string destination;
  std::string type = "q4_k_m";
  std::string embedding;
  std::string mmproj;  // file to write the vision encoder to; empty: beside the model; "none"
  std::string mmproj_type = "f16";
  loader::ConvertOptions options;
};

// "models/gemma-3-1b-it/" -> "gemma-3-1b-it".
std::string NameOf(const std::string& source) {
  const std::filesystem::path path = std::filesystem::path(source).lexically_normal();
  const std::filesystem::path last = path.has_filename() ? path : path.parent_path();
  return last.extension() == ".gguf" ? last.stem().string() : last.filename().string();
}

// A line that is written over, at a terminal alone.
class ConvertProgressLine {
 public:
  ~ConvertProgressLine() { Clear(); }
  Progress progress() const {
    if (!terminal_) return nullptr;
    return [](const loader::ConvertProgress& progress) {
      std::fprintf(stderr, "\r%.0f of %.0f MiB", static_cast<double>(progress.done_bytes) / kMiB,
                   static_cast<double>(progress.total_bytes) / kMiB);
      return true;
    };
  }
  void Clear() const {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
};

// The vision encoder to write beside the model: that of a release's folder.  Null if the folder has
// none, or the flag leaves it out.
absl::StatusOr<std::unique_ptr<loader::VisionSource>> EncoderOf(const std::string& path,
                                                                const ConvertFlags& flags) {
  if (flags.mmproj == pull::kNoEncoder) return nullptr;
  if (loader::FindVision(path) == path) return loader::OpenVisionSource(path);
  if (flags.mmproj.empty()) return nullptr;
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s is no safetensors folder with a vision_config, so there is no encoder for --mmproj %s",
      path, flags.mmproj));
}

// A vision encoder that is written and waits for its name.
struct Mmproj {
  std::string path;
  loader::NewFile file;
  uint64_t bytes = 0;
  bool there = false;  // the same file is there already
};

bool SameContent(const std::string& a, const std::string& b) {
  std::ifstream first(a, std::ios::binary), second(b, std::ios::binary);
  return first && second &&
         std::equal(std::istreambuf_iterator<char>(first), std::istreambuf_iterator<char>(),
                    std::istreambuf_iterator<char>(second), std::istreambuf_iterator<char>());
}

absl::StatusOr<std::unique_ptr<Mmproj>> WriteEncoder(const loader::VisionSource& source,
                                                     const ConvertFlags& flags,
                                                     const Progress& progress) {
  loader::VisionConvertOptions options{.name = flags.options.name,
                                       .num_threads = flags.options.num_threads};
  TANDEM_ASSIGN_OR_RETURN(options.type, loader::ParseMmprojType(flags.mmproj_type));
  const std::string path =
      flags.mmproj.empty() ? loader::MmprojBeside(flags.destination, options.type) : flags.mmproj;
  TANDEM_ASSIGN_OR_RETURN(loader::NewFile file,
                          loader::WriteMmproj(source, path, options, progress));
  std::error_code error;
  const std::string written = file.temporary();
  auto mmproj = std::make_unique<Mmproj>(Mmproj{path, std::move(file)});
  mmproj->bytes = std::filesystem::file_size(written, error);
  // An earlier conversion of the model, to another format, may have written it.
  if (!flags.options.overwrite && std::filesystem::exists(path, error)) {
    mmproj->there = SameContent(written, path);
    if (!mmproj->there) return loader::AlreadyThere(path);
  }
  return mmproj;
}

// Both files, or none: the encoder waits for the model.
absl::Status Convert(ConvertFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(flags.options.mix, loader::ParseWeightMix(flags.type));
  if (!flags.embedding.empty()) {
    TANDEM_ASSIGN_OR_RETURN(flags.options.mix.embedding, loader::ParseDType(flags.embedding));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string path, pull::PathOrPulled(flags.source));
  TANDEM_ASSIGN_OR_RETURN(const auto source, loader::OpenModelSource(path));
  if (flags.options.name.empty()) flags.options.name = NameOf(path);
  TANDEM_ASSIGN_OR_RETURN(const auto encoder, EncoderOf(path, flags));
  if (!flags.options.overwrite && std::filesystem::exists(flags.destination)) {
    return loader::AlreadyThere(flags.destination);
  }
  const ConvertProgressLine line;
  std::unique_ptr<Mmproj> mmproj;
  if (encoder != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(mmproj, WriteEncoder(*encoder, flags, line.progress()));
  }
  TANDEM_ASSIGN_OR_RETURN(
      const loader::ConvertedFile file,
      loader::ConvertToGguf(*source, flags.destination, flags.options, line.progress()));
  line.Clear();
  std::printf("%s: %.1f MiB, %s, %.2f bits a weight\n", flags.destination.c_str(),
              static_cast<double>(file.bytes) / kMiB, flags.options.mix.Name().c_str(),
              file.bits_per_weight);
  if (mmproj == nullptr) return absl::OkStatus();
  if (!mmproj->there) TANDEM_RETURN_IF_ERROR(mmproj->file.Publish(flags.options.overwrite));
  std::printf("%s: %.1f MiB, %s, the vision encoder%s\n", mmproj->path.c_str(),
              static_cast<double>(mmproj->bytes) / kMiB, flags.mmproj_type.c_str(),
              mmproj->there ? " (as it was there already)" : "");
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
  command->add_option("--mmproj", flags->mmproj,
                      "GGUF file to write a release's vision encoder to, or none.  Default: "
                      "beside the model, where it is found by itself");
  command
      ->add_option("--mmproj-type", flags->mmproj_type,
                   "Number format of the encoder's matrices: f32, f16, bf16, q8_0")
      ->type_name("TEXT:{f32,f16,bf16,q8_0}")
      ->check(CheckedBy(loader::ParseMmprojType))
      ->capture_default_str();
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
