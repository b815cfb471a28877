// What the command line says of itself to shells and to man, read off its own subcommands.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tandem {

// Scripts that complete commands, options, the values of options that are enumerations, and names
// of files where there may be one.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);
// tandem.1, for man.
std::string ManualPage(const CLI::App& app, const std::string& version);

}  // namespace tandem
