// What the command line says of itself to shells and to man, read off its own subcommands.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tandem {

// Scripts that complete subcommands, options and file names.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
// tandem.1, for man.
std::string ManualPage(const CLI::App& app, const std::string& version);

}  // namespace tandem
