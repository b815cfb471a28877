// Ports that a cluster wants, looked at before any of its services starts.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/tandem/serve/cluster.h"

namespace tandem {

struct WantedPort {
  std::string flag;     // "--http 127.0.0.1:8080", for errors
  std::string address;  // ADDRESS:PORT; port 0 is always free
};

// `address` with a free port in place of port 0; any other as it is.  Chosen once, so that a gateway
// that is started again is where it was.  Errors as CheckPorts's.
absl::StatusOr<std::string> ChoosePort(const std::string& flag, const std::string& address);

// Those of the services and of this process's page for Prometheus.
std::vector<WantedPort> WantedPorts(const ClusterOptions& options);

// Listens on all of them at once, and lets go.  ALREADY_EXISTS: one is in use, which names the flag
// and the process where that can be seen, or two flags want the same; PERMISSION_DENIED;
// INVALID_ARGUMENT: the address is not this machine's.
absl::Status CheckPorts(const std::vector<WantedPort>& ports);

// The same, for up to `patience` while one is in use: by services that are ending.
absl::Status AwaitPorts(const std::vector<WantedPort>& ports, absl::Duration patience);

}  // namespace tandem
