// How a gateway reaches its loader and workers.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/rpc/loader_client.h"
#include "services/common/rpc/worker_target.h"
#include "services/common/rpc/worker_transport.h"

namespace tandem {

// In place of gRPC, for simulations.  Thread-safe.
class ClusterNetwork {
 public:
  virtual ~ClusterNetwork() = default;
  // Errors as LoaderClient::Create.
  virtual absl::StatusOr<std::unique_ptr<LoaderClient>> ConnectLoader(
      const std::string& target) = 0;
  virtual std::unique_ptr<WorkerTransport> ConnectWorker(const WorkerTarget& target) = 0;
};

}  // namespace tandem
