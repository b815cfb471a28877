#include <cstdio>
#include <memory>

#include "services/common/version/version.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/self_description.h"

namespace tandem {

std::function<int()> AddCompletionCommand(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion", "Print a script that completes tandem's commands and options");
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return [&app, shell] {
    std::fputs((*shell == "bash"  ? BashCompletion(app)
                : *shell == "zsh" ? ZshCompletion(app)
                                  : FishCompletion(app))
                   .c_str(),
               stdout);
    return 0;
  };
}

std::function<int()> AddManualCommand(CLI::App& app) {
  app.add_subcommand("manual", "Print the manual page, for man")->group("");
  return [&app] {
    std::fputs(ManualPage(app, Version()).c_str(), stdout);
    return 0;
  };
}

}  // namespace tandem
