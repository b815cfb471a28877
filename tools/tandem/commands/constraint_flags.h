// Flags that say what an answer must look like.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/generation.pb.h"

namespace tandem {

struct ConstraintFlags {
  std::string schema_file;
  std::string grammar_file;
  std::optional<std::string> regex;
  std::vector<std::string> choices;
};

// Adds --schema, --grammar, --regex and --choices.  They exclude each other.
void AddConstraintFlags(CLI::App& command, ConstraintFlags& flags);

// Reads the file that a flag names.  nullopt: no flag is given.  INVALID_ARGUMENT: a text that is
// not UTF-8.  NOT_FOUND: a file that cannot be read.  RESOURCE_EXHAUSTED: one above 1 MiB.
absl::StatusOr<std::optional<v1::Constraint>> MakeConstraint(const ConstraintFlags& flags);

}  // namespace tandem
