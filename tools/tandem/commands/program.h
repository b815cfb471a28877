// The program around the commands: it picks one, runs it and chooses the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/tandem/commands/command.h"

namespace tandem {

// Commands under one heading of `tandem help`.
struct CommandGroup {
  const char* heading;
  std::vector<CommandFactory> commands;
};

// Runs the command that `argv` names and returns the program's exit status: kExitSuccess,
// kExitUsage for a wrong command line, else kExitFailure.  A write to standard output that failed
// is an error, whichever command made it.
int RunProgram(const std::vector<CommandGroup>& groups, int argc, char** argv);

}  // namespace tandem
