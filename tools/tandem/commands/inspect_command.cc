#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/pull/model_store.h"
#include "services/gateway/tokenizer/tokenizer.h"
#include "services/loader/formats/open_model.h"
#include "tools/tandem/commands/answer_json.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/model_json.h"

namespace tandem {
namespace {

void Print(const nlohmann::ordered_json& json) { std::fputs(PrintJson(json, 2).c_str(), stdout); }

int InspectVision(const std::string& path, bool json) {
  const auto source = loader::OpenVisionSource(path);
  if (!source.ok()) return Fail(source.status());
  if (json) {
    Print(VisionSourceAsJson(**source));
  } else {
    std::fputs(loader::DescribeVisionSource(**source).c_str(), stdout);
  }
  return 0;
}

// The vision encoder that belongs to a model, null if it has none.  An mmproj file beside the model
// whose sizes do not fit is another model's.
absl::StatusOr<std::unique_ptr<loader::VisionSource>> VisionOf(const std::string& path,
                                                               const ModelConfig& config) {
  const auto found = loader::FindVision(path);
  if (!found.has_value()) return nullptr;
  TANDEM_ASSIGN_OR_RETURN(auto vision, loader::OpenVisionSource(*found));
  const absl::Status fits = loader::CheckVisionFits(*vision, config.hidden_dim);
  if (fits.ok()) return vision;
  if (*found == path) return fits;
  return nullptr;
}

void InspectModel(const std::string& path, const loader::ModelSource& source, bool json) {
  const auto vision = VisionOf(path, source.config());
  if (json) {
    nlohmann::ordered_json model = ModelSourceAsJson(source);
    if (!vision.ok()) {
      model["vision"] = {{"error", std::string(vision.status().message())}};
    } else if (*vision != nullptr) {
      model["vision"] = VisionSourceAsJson(**vision);
    }
    return Print(model);
  }
  std::fputs(loader::DescribeModelSource(source).c_str(), stdout);
  if (!vision.ok()) {
    std::fputs(absl::StrFormat("\nVision encoder\n  cannot be read: %s\n",
                               std::string(vision.status().message()))
                   .c_str(),
               stdout);
  } else if (*vision != nullptr) {
    std::fputs(("\n" + loader::DescribeVisionSource(**vision)).c_str(), stdout);
  }
}

}  // namespace

std::function<int()> AddInspectCommand(CLI::App& app) {
  struct Flags {
    std::string path;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("inspect", "Print the contents of a model file");
  command
      ->add_option("file", flags->path,
                   "A GGUF file, an mmproj file, a safetensors folder, or "
                   "synthetic:gemma3-27b?type=q4_0")
      ->required();
  command->add_flag("--json", flags->json, "Print JSON");
  return [flags] {
    const auto path = pull::PathOrPulled(flags->path);
    if (!path.ok()) return Fail(path.status());
    if (loader::IsVisionFile(*path)) return InspectVision(*path, flags->json);
    const auto source = loader::OpenModelSource(*path);
    if (!source.ok()) return Fail(source.status());
    InspectModel(*path, **source, flags->json);
    // What a gateway would say of it.
    const auto tokenizer = gateway::Tokenizer::Create((*source)->vocabulary());
    if (tokenizer.ok()) return 0;
    return Fail(absl::Status(tokenizer.status().code(),
                             absl::StrFormat("%s cannot be served: %s", flags->path,
                                             std::string(tokenizer.status().message()))));
  };
}

}  // namespace tandem
