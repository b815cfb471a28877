// Shell completions and the manual page, generated from the subcommands.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tandem {

// Scripts that complete commands, options, values of enumeration options, and file names.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);
// tandem.1, for man.
std::string ManualPage(const CLI::App& app, const std::string& version);

}  // namespace tandem
