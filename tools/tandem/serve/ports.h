// Checks a cluster's ports before its services start.
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

// `address`, with port 0 replaced by a free port.  Chosen once, so that a restarted gateway has the
// same port.  Errors as CheckPorts's.
absl::StatusOr<std::string> ChoosePort(const std::string& flag, const std::string& address);

// Ports of the services and of this process's page for Prometheus.
std::vector<WantedPort> WantedPorts(const ClusterOptions& options);

// Listens on all ports at once, and closes them.  ALREADY_EXISTS: a port is in use (names the flag
// and, if known, the process), or two flags have the same port; PERMISSION_DENIED;
// INVALID_ARGUMENT: the address is not this machine's.
absl::Status CheckPorts(const std::vector<WantedPort>& ports);

// The same, but retries up to `patience`, for services that are ending.
absl::Status AwaitPorts(const std::vector<WantedPort>& ports, absl::Duration patience);

}  // namespace tandem
