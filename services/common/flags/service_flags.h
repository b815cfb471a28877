// The flags that every service has.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tandem {

// Names the program, and adds
//   --config FILE  the program's own flags as TOML (config_file.h)
//   --version      prints the version, the commit and the build
//   --manual       prints the manual page (not shown by --help)
// Call it after the other flags are there.
void AddServiceFlags(CLI::App& app, const std::string& name);

}  // namespace tandem
