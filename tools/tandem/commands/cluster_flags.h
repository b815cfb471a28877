// Flags of the commands that start a cluster.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/tandem/serve/cluster.h"

namespace tandem {

struct ClusterFlags {
  ClusterOptions options;
  std::string npu = "auto";
  std::string gpu = "prefer";
};

// Adds --model, --npu and the rest to `command`.  The flags must outlive parsing.
void AddClusterFlags(CLI::App& command, ClusterFlags& flags);

// Command line that gives `flags` to another process: every flag of AddClusterFlags but
// --models-dir, which is in the environment.
std::vector<std::string> ClusterArguments(const ClusterFlags& flags);

// The options after parsing, with the executables' directory and the logs' filled in.
absl::StatusOr<ClusterOptions> ResolveClusterFlags(const ClusterFlags& flags);

}  // namespace tandem
