#include <cstdio>
#include <memory>

#include "absl/strings/str_format.h"
#include "services/common/pull/model_store.h"
#include "services/gateway/tokenizer/tokenizer.h"
#include "services/loader/formats/open_model.h"
#include "tools/tandem/commands/answer_json.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/model_json.h"

namespace tandem {

std::function<int()> AddInspectCommand(CLI::App& app) {
  struct Flags {
    std::string path;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("inspect", "Print the contents of a model file");
  command
      ->add_option("file", flags->path,
                   "A GGUF file, a safetensors folder, or synthetic:gemma3-27b?type=q4_0")
      ->required();
  command->add_flag("--json", flags->json, "Print JSON");
  return [flags] {
    const auto path = pull::PathOrPulled(flags->path);
    if (!path.ok()) return Fail(path.status());
    const auto source = loader::OpenModelSource(*path);
    if (!source.ok()) return Fail(source.status());
    std::fputs((flags->json ? PrintJson(ModelSourceAsJson(**source), 2)
                            : loader::DescribeModelSource(**source))
                   .c_str(),
               stdout);
    // What a gateway would say of it.
    const auto tokenizer = gateway::Tokenizer::Create((*source)->vocabulary());
    if (tokenizer.ok()) return 0;
    return Fail(absl::Status(tokenizer.status().code(),
                             absl::StrFormat("%s cannot be served: %s", flags->path,
                                             std::string(tokenizer.status().message()))));
  };
}

}  // namespace tandem
