// Flags of `tandem serve`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/gateway_flags.h"
#include "tools/tandem/commands/cluster_flags.h"

namespace tandem {

struct ServeFlags {
  ClusterFlags cluster;
  // Process id of the command whose cluster this is; 0: of none.  If that process is no longer the
  // parent at the end, nobody else removes the runtime directory.
  int owner = 0;
  // Checked here, and passed to the gateway as they were given.
  gateway::GatewayFlags gateway;
  std::vector<const CLI::Option*> http_options;  // of HTTP, names and tracing
  std::vector<const CLI::Option*> host_options;  // of workers on other hosts
};

// Adds every flag of `tandem serve` to `command`, --config among them.  Each value is checked when
// it is parsed, from the command line and from the file alike.  Both must outlive parsing.
void AddServeFlags(CLI::App& command, ServeFlags& flags);

// The cluster to start, after parsing.  INVALID_ARGUMENT: flags that do not go together.
absl::StatusOr<ClusterOptions> ResolveServeFlags(const ServeFlags& flags);

}  // namespace tandem
