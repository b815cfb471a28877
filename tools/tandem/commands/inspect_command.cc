#include <cstdio>
#include <memory>

#include "services/loader/formats/model_source.h"
#include "tools/tandem/commands/command.h"

namespace tandem {

std::function<int()> AddInspectCommand(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("inspect", "Print what is in a model file");
  command
      ->add_option("file", *path,
                   "A GGUF file, a safetensors folder, or synthetic:gemma3-27b?type=q4_0")
      ->required();
  return [path] {
    const auto source = loader::OpenModelSource(*path);
    if (!source.ok()) return Fail(source.status());
    std::fputs(loader::DescribeModelSource(**source).c_str(), stdout);
    return 0;
  };
}

}  // namespace tandem
