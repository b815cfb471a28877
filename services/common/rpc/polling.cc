#include "services/common/rpc/polling.h"

#include <cstdlib>

namespace tandem {

void PollForLatency() {
  ::setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
  ::setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "250", /*overwrite=*/0);
}

}  // namespace tandem
