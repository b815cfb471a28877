// The command line's subcommands.  Each lives in a file of its own and registers itself here.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace tandem {

// Adds a subcommand to `app` and returns what runs it: 0 is success.  Runs at most once.
using CommandFactory = std::function<int()> (*)(CLI::App& app);

std::function<int()> AddServeCommand(CLI::App& app);
std::function<int()> AddBenchCommand(CLI::App& app);
std::function<int()> AddDoctorCommand(CLI::App& app);
std::function<int()> AddGenerateCommand(CLI::App& app);
std::function<int()> AddChatCommand(CLI::App& app);
std::function<int()> AddEmbedCommand(CLI::App& app);
std::function<int()> AddInspectCommand(CLI::App& app);
std::function<int()> AddCompletionCommand(CLI::App& app);
std::function<int()> AddLogsCommand(CLI::App& app);
std::function<int()> AddManualCommand(CLI::App& app);
std::function<int()> AddConvertCommand(CLI::App& app);
std::function<int()> AddModelsCommand(CLI::App& app);
std::function<int()> AddStatusCommand(CLI::App& app);
std::function<int()> AddStopCommand(CLI::App& app);
std::function<int()> AddTraceCommand(CLI::App& app);
std::function<int()> AddTuneCommand(CLI::App& app);

// Prints one line, "tandem: MESSAGE (CODE)", to standard error and returns 1.
int Fail(const absl::Status& status);

// Directory of the running executable, where the services' executables are too.
std::string ExecutableDirectory();

}  // namespace tandem
