#include "services/common/rpc/polling.h"

#include <poll.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "services/common/rpc/adaptive_polling.h"

// gRPC's function for polling, meant to be replaced (src/core/lib/iomgr/ev_posix.h); versions
// without it poll as they do.
extern int (*grpc_poll_function)(struct pollfd*, nfds_t, int) __attribute__((weak));

namespace tandem {

void PollForLatency() {
  ::setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
  ::setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "250", /*overwrite=*/0);
  if (&grpc_poll_function != nullptr) grpc_poll_function = &AdaptivePolling::Poll;
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace tandem
