// Parsing a command line, and the exit status that a wrong one ends with.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "services/common/base/exit_codes.h"

namespace tandem {

// The candidate that `word` is most likely a misspelling of; empty when none is close.
std::string ClosestWord(const std::string& word, const std::vector<std::string>& candidates);

// Parses the command line.  nullopt: go on.  Otherwise the status to exit with: kExitSuccess after
// --help and the like; kExitUsage after one line on standard error that describes the error, with a
// suggestion for a misspelt flag.
std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv);

}  // namespace tandem
