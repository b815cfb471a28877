// tandem: the command line.
#include "tools/tandem/commands/program.h"

int main(int argc, char** argv) {
  using namespace tandem;
  return RunProgram(
      {
          {"Serving", {AddServeCommand, AddStatusCommand, AddLogsCommand, AddStopCommand}},
          {"Asking", {AddGenerateCommand, AddChatCommand, AddEmbedCommand}},
          {"Models", {AddModelsCommand, AddInspectCommand, AddConvertCommand}},
          {"Measuring", {AddBenchCommand, AddTuneCommand, AddTraceCommand, AddDoctorCommand}},
          {"Help", {AddCompletionCommand, AddManualCommand}},
      },
      argc, argv);
}
