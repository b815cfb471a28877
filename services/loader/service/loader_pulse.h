// The loader's state, as it is reported to the service manager.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/rpc/loader_client.h"
#include "services/common/systemd/heartbeat.h"

namespace tandem::loader {

// Asks the loader over its own socket, as any client would.  Single-thread.
class LoaderPulse {
 public:
  // `target`: where it serves.
  static absl::StatusOr<LoaderPulse> Create(const std::string& target);

  // Blocks as long as LoaderClient::GetStatus may.
  Pulse Take();

 private:
  explicit LoaderPulse(std::unique_ptr<LoaderClient> client) : client_(std::move(client)) {}
  std::unique_ptr<LoaderClient> client_;
};

}  // namespace tandem::loader
