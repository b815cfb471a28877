// Finds the workers, and waits for those that are not there (yet).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/plan/planner.h"
#include "services/common/rpc/worker_absence.h"
#include "services/common/rpc/worker_client.h"

namespace tandem::gateway {

// A worker target and what is known of it.  The client is shared with the status page.
struct WorkerPeer {
  std::shared_ptr<WorkerClient> client;
  absl::StatusOr<RemoteWorker> remote = absl::UnavailableError("not asked yet");
  // What the worker left behind instead of coming.
  std::optional<WorkerAbsence> absence = std::nullopt;
  bool seen = false;      // it was there before, in this gateway's life
  bool is_npu = false;    // what it was set up as
  bool left_out = false;  // by the policy: it is not asked, and `absence` says so

  // It has said that it will not come, and was never there: nothing is lost.
  bool absent() const { return !remote.ok() && absence.has_value() && !seen; }
};

// Asks a peer that is not there to describe itself: at once where its socket shows that nobody
// listens, else waiting for at most `timeout`.
void AskPeer(WorkerPeer& peer, absl::Duration timeout);

// "unix:/run/tandem/npu.sock" -> "npu": what a worker is called until it has given its name.
std::string PeerName(const std::string& target);

// Why there is no NPU, by the words of a worker that is absent; empty if none says so.
std::string WhyNoNpu(const std::vector<WorkerPeer>& peers);

// Asks every peer to describe itself, until `plan` succeeds and none is missing, or some are
// missing for `grace` and `plan` succeeds without them, or `wait` has passed.  Returns the plan,
// with a notice of every worker that is missing.  One that says it will not come is not waited for.
// `plan` is called with the descriptions of the workers that are there.
// UNAVAILABLE: no plan, and a worker is missing, named with what became of it.
// FAILED_PRECONDITION: one is of another version or unfit.  With none missing, the plan's error.
absl::StatusOr<Plan> FindWorkers(
    std::vector<WorkerPeer>& peers, absl::Duration grace, absl::Duration wait,
    const std::function<absl::StatusOr<Plan>(const std::vector<WorkerDescription>&)>& plan);

}  // namespace tandem::gateway
