#include "services/gateway/executor/worker_finder.h"

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/cluster_network.h"
#include "services/common/rpc/tls.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kRound = absl::Milliseconds(500);
constexpr absl::Duration kPause = absl::Milliseconds(50);

// Asks those that have not answered yet, at the same time.
void AskMissing(std::vector<WorkerPeer>& peers) {
  std::vector<std::thread> threads;
  for (WorkerPeer& peer : peers) {
    if (peer.remote.ok()) continue;
    threads.emplace_back([&peer] { AskPeer(peer, kRound); });
  }
  for (std::thread& thread : threads) thread.join();
}

// One reason for each worker that is missing and not absent.
std::vector<std::string> Missing(const std::vector<WorkerPeer>& peers) {
  std::vector<std::string> reasons;
  for (const WorkerPeer& peer : peers) {
    if (peer.remote.ok() || peer.absent()) continue;
    reasons.emplace_back(peer.remote.status().message());
    if (peer.absence.has_value()) reasons.back() += ": " + peer.absence->reason;
  }
  return reasons;
}

// Whether every peer is there or will not come.
bool Settled(const std::vector<WorkerPeer>& peers) {
  return std::all_of(peers.begin(), peers.end(), [](const WorkerPeer& peer) {
    return peer.remote.ok() || peer.absence.has_value();
  });
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

absl::StatusOr<std::vector<WorkerPeer>> MakePeers(const ExecutorOptions& options) {
  if (options.worker_targets.empty()) {
    return absl::InvalidArgumentError("no worker targets were given");
  }
  std::vector<std::string> texts = options.worker_targets;
  texts.insert(texts.end(), options.npu_targets.begin(), options.npu_targets.end());
  const auto encrypted = options.tls.given() ? MakeChannelCredentials(options.tls) : nullptr;
  const auto clear = grpc::InsecureChannelCredentials();
  std::vector<WorkerPeer> peers;
  for (const std::string& text : texts) {
    TANDEM_ASSIGN_OR_RETURN(const WorkerTarget target, ParseWorkerTarget(text));
    if (target.tls && !options.tls.given()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("worker %s needs --tls-cert, --tls-key and --tls-ca", text));
    }
    auto client =
        options.network == nullptr
            ? std::make_shared<WorkerClient>(target, target.tls ? encrypted : clear)
            : std::make_shared<WorkerClient>(target, options.network->ConnectWorker(target));
    peers.push_back({.client = std::move(client)});
    WorkerPeer& peer = peers.back();
    peer.is_npu = peers.size() > options.worker_targets.size();
    peer.left_out = peer.is_npu && options.policy.npu == NpuPolicy::kOff;
    if (!peer.left_out) continue;
    peer.absence = {
        .kind = "npu", .name = PeerName(text), .reason = "--npu=off leaves the NPU out"};
  }
  return peers;
}

void AskPeer(WorkerPeer& peer, absl::Duration timeout) {
  if (peer.left_out) return;
  const std::string& target = peer.client->target();
  if (!peer.client->Listens()) {
    peer.absence = ReadAbsence(target);
    peer.remote = absl::UnavailableError(absl::StrFormat("worker at %s is not there", target));
    return;
  }
  peer.absence.reset();
  peer.remote = peer.client->Describe(timeout);
  if (peer.remote.ok()) peer.seen = true;
}

std::string PeerName(const std::string& target) {
  const auto socket = UnixSocketPath(target);
  if (!socket.has_value()) return target;
  return std::filesystem::path(*socket).stem().string();
}

std::string WhyNoNpu(const std::vector<WorkerPeer>& peers) {
  for (const WorkerPeer& peer : peers) {
    if (peer.absent() && peer.absence->kind == "npu") return peer.absence->reason;
  }
  return "";
}

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
    const bool settled = Settled(peers);
    if (made.ok() && (settled || waited >= std::min(grace, wait))) {
      for (const std::string& reason : Missing(peers)) {
        made->notice += absl::StrFormat("%s%s", made->notice.empty() ? "" : "; ", reason);
      }
      return made;
    }
    if (!made.ok() && (settled || waited >= wait)) return NoPlan(made.status(), peers);
    absl::SleepFor(kPause);
  }
}

}  // namespace tandem::gateway
