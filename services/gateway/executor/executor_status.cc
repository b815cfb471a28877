#include "services/gateway/executor/executor_status.h"

#include <algorithm>
#include <utility>

namespace tandem::gateway {
namespace {

void Describe(const RemoteWorker& remote, v1::WorkerStatus& status) {
  const WorkerDescription& description = remote.description;
  status.set_name(description.name);
  status.set_kind(description.kind == DeviceKind::kNpu ? "npu" : "gpu");
  status.set_device(description.device);
  status.set_emulated(description.emulated);
  status.set_memory_bytes(description.memory_bytes);
  status.set_pid(remote.pid);
  status.clear_stages();
  for (const StageKind kind : description.stages) {
    status.add_stages(std::string(StageKindName(kind)));
  }
}

std::string TransportOf(const WorkerClient& client) {
  if (!client.remote()) return "shared memory";
  return client.tls() ? "mutual TLS" : "TCP";
}

// A worker that is not there.
void DescribeMissing(const WorkerPeer& peer, v1::WorkerStatus& status) {
  status.set_state("lost");
  status.set_detail(std::string(peer.remote.status().message()));
  if (peer.absence.has_value()) {
    if (peer.absent()) status.set_state(peer.absence->device_present ? "unusable" : "absent");
    status.set_name(peer.absence->name);
    status.set_kind(peer.absence->kind);
    status.set_detail(peer.absence->reason);
  }
  if (status.name().empty()) status.set_name(PeerName(status.target()));
  if (status.kind().empty() && peer.is_npu) status.set_kind("npu");
}

bool IsMissing(const v1::WorkerStatus& status) {
  return status.state() == "lost" || status.state() == "absent" || status.state() == "unusable";
}

void DescribePeer(const WorkerPeer& peer, v1::WorkerStatus& status) {
  if (!peer.remote.ok()) return DescribeMissing(peer, status);
  status.set_state("connected");
  status.clear_detail();
  Describe(*peer.remote, status);
}

bool SameSegments(const std::vector<v1::SegmentStatus>& a,
                  const std::vector<v1::SegmentStatus>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const v1::SegmentStatus& x, const v1::SegmentStatus& y) {
                      return x.worker() == y.worker() && x.stages() == y.stages();
                    });
}

}  // namespace

void ExecutorStatus::SetPeers(const std::vector<WorkerPeer>& peers) {
  absl::MutexLock lock(&mutex_);
  workers_.resize(peers.size());
  for (size_t i = 0; i < peers.size(); ++i) {
    Worker& worker = workers_[i];
    worker.client = peers[i].client;
    worker.status.set_target(peers[i].client->target());
    worker.status.set_transport(TransportOf(*peers[i].client));
    DescribePeer(peers[i], worker.status);
  }
}

void ExecutorStatus::SetMissing(const std::vector<WorkerPeer>& peers) {
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; i < peers.size() && i < workers_.size(); ++i) {
    v1::WorkerStatus& status = workers_[i].status;
    if (!peers[i].remote.ok() || IsMissing(status)) DescribePeer(peers[i], status);
  }
}

void ExecutorStatus::SetPlan(const Plan& plan, uint32_t num_layers) {
  auto next = std::make_shared<Segments>();
  for (const Segment& segment : plan.segments) {
    v1::SegmentStatus status;
    status.set_index(segment.index);
    status.set_worker(plan.workers[segment.worker].name);
    status.set_stages(DescribeSegment(segment, num_layers));
    next->descriptions.push_back(std::move(status));
  }
  next->counters = std::vector<Counters>(plan.segments.size());
  absl::MutexLock lock(&mutex_);
  if (!SameSegments(segments_->descriptions, next->descriptions)) segments_ = std::move(next);
}

ExecutorStatus::Worker* ExecutorStatus::Find(const std::string& worker) {
  for (Worker& candidate : workers_) {
    if (candidate.status.name() == worker) return &candidate;
  }
  return nullptr;
}

void ExecutorStatus::SetState(const std::string& worker, std::string state, std::string detail) {
  absl::MutexLock lock(&mutex_);
  Worker* found = Find(worker);
  if (found == nullptr) return;
  found->status.set_state(std::move(state));
  found->status.set_detail(std::move(detail));
}

void ExecutorStatus::SetReport(const std::string& worker,
                               const worker::v1::LoadPlanReport& report) {
  absl::MutexLock lock(&mutex_);
  Worker* found = Find(worker);
  if (found == nullptr) return;
  found->status.set_weight_import(report.weight_import());
  found->status.set_exchange_import(report.exchange_import());
  found->status.set_weight_bytes(report.weight_bytes());
  found->status.set_kv_bytes(report.kv_bytes());
  found->status.set_tuning(report.tuning());
}

void ExecutorStatus::SetPlacements(std::vector<v1::PlacementStatus> placements, uint64_t moves) {
  absl::MutexLock lock(&mutex_);
  placements_ = std::move(placements);
  moves_ = moves;
}

void ExecutorStatus::Count(const SegmentTiming& timing) {
  Counters& counters = segments_->counters[timing.segment_index];
  counters.calls.fetch_add(1, std::memory_order_relaxed);
  counters.device_ns.fetch_add(timing.device_ns, std::memory_order_relaxed);
  counters.round_trip_ns.fetch_add(absl::ToInt64Nanoseconds(timing.round_trip),
                                   std::memory_order_relaxed);
}

void ExecutorStatus::Fill(v1::GetStatusResponse& status) const {
  absl::MutexLock lock(&mutex_);
  status.mutable_placements()->Assign(placements_.begin(), placements_.end());
  status.set_placement_moves(moves_);
  for (const Worker& worker : workers_) {
    v1::WorkerStatus* shown = status.add_workers();
    *shown = worker.status;
    const HopStatistics::Quantiles hops = worker.client->hops().Read();
    shown->set_hop_p50_us(hops.p50_us);
    shown->set_hop_p99_us(hops.p99_us);
    shown->set_sent_bytes(worker.client->sent_bytes());
    shown->set_received_bytes(worker.client->received_bytes());
  }
  for (size_t i = 0; i < segments_->descriptions.size(); ++i) {
    const Counters& counters = segments_->counters[i];
    v1::SegmentStatus* shown = status.add_segments();
    *shown = segments_->descriptions[i];
    shown->set_calls(counters.calls.load(std::memory_order_relaxed));
    shown->set_device_seconds(
        static_cast<double>(counters.device_ns.load(std::memory_order_relaxed)) * 1e-9);
    shown->set_round_trip_seconds(
        static_cast<double>(counters.round_trip_ns.load(std::memory_order_relaxed)) * 1e-9);
  }
}

}  // namespace tandem::gateway
