// tandem: the command line.
#include <CLI/CLI.hpp>
#include <functional>
#include <map>

#include "services/common/version/version.h"
#include "tools/tandem/commands/command.h"

int main(int argc, char** argv) {
  CLI::App app{"Serves large language models on an NPU and a GPU together."};
  app.set_version_flag("--version", tandem::VersionText("tandem"));
  app.require_subcommand(1);

  const tandem::CommandFactory factories[] = {
      tandem::AddServeCommand,   tandem::AddGenerateCommand,   tandem::AddChatCommand,
      tandem::AddStatusCommand,  tandem::AddModelsCommand,     tandem::AddInspectCommand,
      tandem::AddConvertCommand, tandem::AddCompletionCommand, tandem::AddManualCommand,
      tandem::AddBenchCommand,   tandem::AddTuneCommand,       tandem::AddDoctorCommand,
      tandem::AddTraceCommand,   tandem::AddEmbedCommand,      tandem::AddStopCommand,
      tandem::AddLogsCommand,
  };
  std::map<CLI::App*, std::function<int()>> commands;
  for (const auto factory : factories) {
    auto run = factory(app);
    commands[app.get_subcommands({}).back()] = std::move(run);
  }
  CLI11_PARSE(app, argc, argv);
  return commands.at(app.get_subcommands().front())();
}
