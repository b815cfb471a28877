// Pulled models, for the commands `tandem pull`, `run`, `rm` and `models`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/pull/pull.h"

namespace tandem {

struct PullFlags {
  std::string folder;      // empty: pull::DefaultModelsFolder()
  std::string token_file;  // empty: the environment's token
  std::string mmproj;      // as pull::PullOptions::mmproj
  int connections = pull::TransferOptions().connections;
};

// Adds --models-dir.
void AddModelsDirFlag(CLI::App& command, std::string& folder);
// Adds it and those of a pull.  The flags must outlive parsing.
void AddPullFlags(CLI::App& command, PullFlags& flags);

// Pulls a model with its vision encoder and shows the progress on standard error.  SIGINT and
// SIGTERM stop it, and the next pull continues.  Says why there is no encoder, and warns of a file
// that cannot be served.  Errors as for pull::Pull.
absl::StatusOr<pull::PulledModel> PullModel(const std::string& name, const PullFlags& flags);

// "15.91 GB".
std::string SizeText(uint64_t bytes);

// The pulled models as a table, or as an array of JSON; empty without any.
std::string PulledAsTable(const std::vector<pull::PulledModel>& models);
std::string PulledAsJson(const std::vector<pull::PulledModel>& models);

}  // namespace tandem
