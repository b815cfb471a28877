// Where a worker is, as --worker gives it.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// On this machine a worker shares memory with the gateway; on another host what a segment reads and
// writes travels in its messages.
struct WorkerTarget {
  std::string text;     // as given, and as errors and status show it
  std::string address;  // what gRPC takes
  bool remote = false;  // on another host
  bool tls = false;
};

// "unix:PATH", "HOST:PORT": on this machine.  "tls://HOST:PORT": on another host, by mutual TLS.
// "tcp://HOST:PORT": on another host, in the clear.
// INVALID_ARGUMENT: another scheme, or no host and port behind it.
absl::StatusOr<WorkerTarget> ParseWorkerTarget(const std::string& text);

}  // namespace tandem
