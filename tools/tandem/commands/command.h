// The command line's subcommands.  Each lives in a file of its own and registers itself here.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "services/common/flags/parse_flags.h"

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
std::function<int()> AddPullCommand(CLI::App& app);
std::function<int()> AddRemoveCommand(CLI::App& app);
std::function<int()> AddRunCommand(CLI::App& app);
std::function<int()> AddStatusCommand(CLI::App& app);
std::function<int()> AddStopCommand(CLI::App& app);
std::function<int()> AddTraceCommand(CLI::App& app);
std::function<int()> AddTuneCommand(CLI::App& app);

// A mistake in the command line that the checks of single flags cannot detect.
absl::Status UsageError(const std::string& message);

// Prints one line, "tandem: MESSAGE", to standard error, followed by the API's code if the gateway
// sent the error.  Returns the exit status: kExitUsage after UsageError, else kExitFailure.
int Fail(const absl::Status& status);

// Directory of the running executable, where the services' executables are too.
std::string ExecutableDirectory();

}  // namespace tandem
