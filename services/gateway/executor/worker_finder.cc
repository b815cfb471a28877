#include "services/gateway/executor/worker_finder.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kRound = absl::Milliseconds(500);
constexpr absl::Duration kPause = absl::Milliseconds(100);

// Asks those that have not answered yet, at the same time.
void AskMissing(std::vector<WorkerPeer>& peers) {
  std::vector<std::thread> threads;
  for (WorkerPeer& peer : peers) {
    if (peer.remote.ok()) continue;
    threads.emplace_back([&peer] { peer.remote = peer.client->Describe(kRound); });
  }
  for (std::thread& thread : threads) thread.join();
}

// One reason for each worker that is missing.
std::vector<std::string> Missing(const std::vector<WorkerPeer>& peers) {
  std::vector<std::string> reasons;
  for (const WorkerPeer& peer : peers) {
    if (!peer.remote.ok()) reasons.emplace_back(peer.remote.status().message());
  }
  return reasons;
}

absl::Status NoPlan(const absl::Status& why, const std::vector<WorkerPeer>& peers) {
  const std::vector<std::string> missing = Missing(peers);
  if (missing.empty()) return why;
  const bool refused = std::any_of(peers.begin(), peers.end(), [](const WorkerPeer& peer) {
    return absl::IsFailedPrecondition(peer.remote.status());
  });
  return absl::Status(
      refused ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnavailable,
      absl::StrFormat("%s; %s", std::string(why.message()), absl::StrJoin(missing, "; ")));
}

}  // namespace

absl::StatusOr<Plan> FindWorkers(
    std::vector<WorkerPeer>& peers, absl::Duration grace, absl::Duration wait,
    const std::function<absl::StatusOr<Plan>(const std::vector<WorkerDescription>&)>& plan) {
  const absl::Time start = absl::Now();
  for (WorkerPeer& peer : peers) peer.remote = absl::UnavailableError("not asked yet");
  while (true) {
    AskMissing(peers);
    std::vector<WorkerDescription> there;
    for (const WorkerPeer& peer : peers) {
      if (peer.remote.ok()) there.push_back(peer.remote->description);
    }
    absl::StatusOr<Plan> made = plan(there);
    const absl::Duration waited = absl::Now() - start;
    const bool complete = there.size() == peers.size();
    if (made.ok() && (complete || waited >= std::min(grace, wait))) {
      for (const std::string& reason : Missing(peers)) {
        made->notice += absl::StrFormat("%s%s", made->notice.empty() ? "" : "; ", reason);
      }
      return made;
    }
    if (!made.ok() && (complete || waited >= wait)) return NoPlan(made.status(), peers);
    absl::SleepFor(kPause);
  }
}

}  // namespace tandem::gateway
