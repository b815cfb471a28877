// A worker's calls over gRPC.
#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>

#include "services/common/rpc/worker_target.h"
#include "services/common/rpc/worker_transport.h"

namespace tandem {

// Connects lazily and retries for ever.  `credentials`: for a remote target.  Reconnects to a
// remote worker that falls silent: after a network cut the old connection would not recover for
// minutes.
std::unique_ptr<WorkerTransport> MakeGrpcWorkerTransport(
    WorkerTarget target, std::shared_ptr<grpc::ChannelCredentials> credentials);

}  // namespace tandem
