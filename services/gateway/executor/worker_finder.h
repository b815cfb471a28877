// Finds the workers, and waits for those that are not there (yet).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/plan/planner.h"
#include "services/common/rpc/worker_client.h"

namespace tandem::gateway {

// A worker target and what is known of it.  The client is shared with the status page.
struct WorkerPeer {
  std::shared_ptr<WorkerClient> client;
  absl::StatusOr<RemoteWorker> remote = absl::UnavailableError("not asked yet");
};

// Asks every peer to describe itself, until all have and `plan` succeeds, or some are missing for
// `grace` and `plan` succeeds without them, or `wait` has passed.  Returns the plan, with a notice
// of every worker that is missing.
// `plan` is called with the descriptions of the workers that are there.
// UNAVAILABLE: no plan, and a worker is missing, named with what became of it.
// FAILED_PRECONDITION: one is of another version or unfit.  With none missing, the plan's error.
absl::StatusOr<Plan> FindWorkers(
    std::vector<WorkerPeer>& peers, absl::Duration grace, absl::Duration wait,
    const std::function<absl::StatusOr<Plan>(const std::vector<WorkerDescription>&)>& plan);

}  // namespace tandem::gateway
