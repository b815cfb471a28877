// Flags from a file: one mechanism for every program that has --config.
#pragma once

#include <CLI/CLI.hpp>

namespace tandem {

// Adds --config FILE to `app`, a program or a subcommand.  The file is TOML:
//
//   model = "gemma.gguf"                   # --model gemma.gguf
//   worker = ["tls://a:1", "tls://b:1"]    # a flag that may be repeated
//   metrics = true                         # --metrics; false leaves it out
//
// A key is a flag's name without its dashes.  A flag on the command line is stronger than its key,
// and a key satisfies a required flag.  A file that cannot be read, broken syntax, an unknown key
// and a value that the flag refuses are usage errors: CLI::ParseError, "FILE:LINE: KEY: REASON".
// Call it after the other flags are there.  `app`: Borrowed; must outlive parsing.
void AddConfigFlag(CLI::App& app);

}  // namespace tandem
