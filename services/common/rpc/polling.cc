#include "services/common/rpc/polling.h"

#include <cstdlib>

#include "absl/synchronization/mutex.h"

namespace tandem {

void PollForLatency() {
  ::setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
  ::setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "250", /*overwrite=*/0);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace tandem
