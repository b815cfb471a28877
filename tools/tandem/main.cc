// tandem: the command line.
#include "tools/tandem/commands/program.h"

int main(int argc, char** argv) {
  using namespace tandem;
  return RunProgram(
      {
          {"Serving",
           {AddRunCommand, AddServeCommand, AddStatusCommand, AddLogsCommand, AddStopCommand}},
          {"Asking", {AddGenerateCommand, AddChatCommand, AddEmbedCommand}},
          {"Models",
           {AddPullCommand, AddModelsCommand, AddRemoveCommand, AddInspectCommand,
            AddConvertCommand}},
          {"Measuring", {AddBenchCommand, AddTuneCommand, AddTraceCommand, AddDoctorCommand}},
          {"Help", {AddCompletionCommand, AddManualCommand}},
      },
      argc, argv);
}
