// Finds the workers, and waits for missing ones.
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
#include "services/gateway/executor/executor.h"

namespace tandem::gateway {

// A worker target and its state.  The client is shared with the status page.
struct WorkerPeer {
  std::shared_ptr<WorkerClient> client;
  absl::StatusOr<RemoteWorker> remote = absl::UnavailableError("not asked yet");
  // The note of a worker that will not start.
  std::optional<WorkerAbsence> absence = std::nullopt;
  bool seen = false;      // it was there before, in this gateway's life
  bool is_npu = false;    // what it was set up as
  bool left_out = false;  // by the policy: it is not asked, and `absence` says so

  // It has said that it will not come, and was never there: nothing is lost.
  bool absent() const { return !remote.ok() && absence.has_value() && !seen; }
};

// Of every worker target, then of every NPU worker's; NPUs are left out with NpuPolicy::kOff.
// INVALID_ARGUMENT: no worker target, a malformed one, or one that needs TLS files.
absl::StatusOr<std::vector<WorkerPeer>> MakePeers(const ExecutorOptions& options);

// Asks a missing peer to describe itself.  Returns at once if no process listens on its socket,
// else within `timeout`.
void AskPeer(WorkerPeer& peer, absl::Duration timeout);

// "unix:/run/tandem/npu.sock" -> "npu": the name of a worker until it has described itself.
std::string PeerName(const std::string& target);

// Why there is no NPU, from an absent worker's note; empty without a note.
std::string WhyNoNpu(const std::vector<WorkerPeer>& peers);

// Asks every peer to describe itself, until `plan` succeeds with all peers, or some have been
// missing for `grace` and `plan` succeeds without them, or `wait` has passed.  Does not wait for
// absent workers.  Returns the plan, with a notice of every missing worker.  `plan` is called with
// the descriptions of the workers that answer.  UNAVAILABLE: no plan, and a worker is missing;
// names it and the reason.  FAILED_PRECONDITION: a worker has another version or is unfit.  If no
// worker is missing: the error of `plan`.
absl::StatusOr<Plan> FindWorkers(
    std::vector<WorkerPeer>& peers, absl::Duration grace, absl::Duration wait,
    const std::function<absl::StatusOr<Plan>(const std::vector<WorkerDescription>&)>& plan);

}  // namespace tandem::gateway
