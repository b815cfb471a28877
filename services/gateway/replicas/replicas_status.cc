// Replicas: what others may know of them.
#include <algorithm>
#include <utility>

#include "services/gateway/replicas/replicas.h"

namespace tandem::gateway {
namespace {

// Adds the load and the counters of `own` to `sum`.  Limits are added as well: so many requests may
// run and wait in all.
void AddScheduler(const v1::SchedulerStatus& own, v1::SchedulerStatus& sum) {
  sum.set_running(sum.running() + own.running());
  sum.set_waiting(sum.waiting() + own.waiting());
  sum.set_max_sequences(sum.max_sequences() + own.max_sequences());
  sum.set_max_waiting(sum.max_waiting() + own.max_waiting());
  sum.set_max_rows(std::max(sum.max_rows(), own.max_rows()));
  const auto add = [](const auto& from, auto& to) {
    while (to.size() < from.size()) to.Add(0);
    for (int i = 0; i < from.size(); ++i) to.Set(i, to.Get(i) + from.Get(i));
  };
  add(own.kv_blocks_total(), *sum.mutable_kv_blocks_total());
  add(own.kv_blocks_used(), *sum.mutable_kv_blocks_used());
  add(own.kv_blocks_cached(), *sum.mutable_kv_blocks_cached());
  add(own.kv_blocks_evicted(), *sum.mutable_kv_blocks_evicted());
  for (int d = 0; d < own.drafters_size(); ++d) {
    if (d == sum.drafters_size()) {
      *sum.add_drafters() = own.drafters(d);
      continue;
    }
    v1::DrafterStatus& drafter = *sum.mutable_drafters(d);
    drafter.set_drafted_tokens(drafter.drafted_tokens() + own.drafters(d).drafted_tokens());
    drafter.set_accepted_tokens(drafter.accepted_tokens() + own.drafters(d).accepted_tokens());
    drafter.set_busy_seconds(drafter.busy_seconds() + own.drafters(d).busy_seconds());
    if (drafter.detail().empty()) drafter.set_detail(own.drafters(d).detail());
  }
}

// A worker that two replicas share is one: its plans' bytes are added.  It is lost if it is lost to one
// of them, else ready if it is to one.
void AddWorker(v1::WorkerStatus&& worker, v1::GetStatusResponse& status) {
  const auto known = std::ranges::find_if(status.workers(), [&worker](const auto& other) {
    return other.name() == worker.name() && other.target() == worker.target();
  });
  if (known == status.workers().end()) {
    *status.add_workers() = std::move(worker);
    return;
  }
  v1::WorkerStatus& shown =
      *status.mutable_workers(static_cast<int>(known - status.workers().begin()));
  shown.set_weight_bytes(shown.weight_bytes() + worker.weight_bytes());
  shown.set_kv_bytes(shown.kv_bytes() + worker.kv_bytes());
  shown.set_sent_bytes(shown.sent_bytes() + worker.sent_bytes());
  shown.set_received_bytes(shown.received_bytes() + worker.received_bytes());
  shown.set_hop_p50_us(std::max(shown.hop_p50_us(), worker.hop_p50_us()));
  shown.set_hop_p99_us(std::max(shown.hop_p99_us(), worker.hop_p99_us()));
  if (shown.state() == "lost" || (worker.state() != "lost" && worker.state() != "ready")) return;
  shown.set_state(worker.state());
  shown.set_detail(worker.detail());
}

void AddLine(std::string line, std::string& text) {
  if (line.empty()) return;
  text += (text.empty() ? "" : "; ") + std::move(line);
}

}  // namespace

bool Replicas::waiting() const {
  MutexLock lock(mutex_);
  return std::ranges::any_of(replicas_, [](const auto& replica) {
    return !replica->gone && (replica->engine == nullptr || replica->engine->recovering());
  });
}

std::vector<uint64_t> Replicas::progress() const {
  std::vector<uint64_t> counts;
  for (const auto& engine : engines()) {
    if (engine == nullptr) continue;
    v1::GetStatusResponse status;
    engine->FillStatus(status);
    uint64_t count = engine->turns();
    for (const v1::SegmentStatus& segment : status.segments()) count += segment.calls();
    counts.push_back(count);
  }
  return counts;
}

bool Replicas::drafts() const {
  const std::vector<std::shared_ptr<Engine>> all = engines();
  return std::ranges::any_of(
      all, [](const auto& engine) { return engine != nullptr && engine->drafts(); });
}

uint32_t Replicas::max_sequence_len() const {
  uint32_t most = 0;
  for (const auto& engine : engines()) {
    if (engine != nullptr) most = std::max(most, engine->max_sequence_len());
  }
  return most;
}

std::string Replicas::placement() const {
  std::string placement;
  for (const auto& engine : engines()) {
    if (engine != nullptr) AddLine(engine->placement(), placement);
  }
  return placement;
}

SchedulerCounters Replicas::counters() const {
  SchedulerCounters sum;
  for (const auto& engine : engines()) {
    if (engine != nullptr) sum = sum + engine->counters();
  }
  return sum;
}

void Replicas::FillStatus(v1::GetStatusResponse& status) const {
  const std::vector<std::shared_ptr<Engine>> all = engines();
  if (alone_) return all[0]->FillStatus(status);
  std::string placement, notice, detail, model_notice;
  bool any_ready = false, draining = false;
  for (uint32_t r = 0; r < all.size(); ++r) {
    v1::GetStatusResponse own;
    if (all[r] != nullptr) all[r]->FillStatus(own);
    any_ready |= own.state() == "ready";
    {
      MutexLock lock(mutex_);
      if (replicas_[r]->gone) continue;
      draining |= own.state() == "draining" && !replicas_[r]->leaving;
      v1::ReplicaStatus& replica = *status.add_replicas();
      FillReplica(r, own, replica);
      if (!replica.detail().empty()) {
        AddLine("replica " + std::to_string(r) + ": " + replica.detail(), detail);
      }
    }
    AddLine(own.placement(), placement);
    if (notice.empty()) notice = own.placement_notice();
    if (model_notice.empty()) model_notice = own.model_notice();
    for (v1::WorkerStatus& worker : *own.mutable_workers()) {
      AddWorker(std::move(worker), status);
    }
    for (v1::SegmentStatus& segment : *own.mutable_segments()) {
      *status.add_segments() = std::move(segment);
    }
    for (v1::PlacementStatus& tried : *own.mutable_placements()) {
      *status.add_placements() = std::move(tried);
    }
    AddScheduler(own.scheduler(), *status.mutable_scheduler());
    status.set_recoveries(status.recoveries() + own.recoveries());
    status.set_placement_moves(status.placement_moves() + own.placement_moves());
  }
  if (status.replicas_size() == 1 && !shows_lone_) status.clear_replicas();
  const SchedulerCounters sums = counters();
  for (const SchedulerCounter& counter : kSchedulerCounters) {
    if (counter.set_status == nullptr) continue;
    (status.mutable_scheduler()->*counter.set_status)(sums.*counter.value);
  }
  status.set_state(draining ? "draining" : any_ready ? "ready" : "recovering");
  status.set_detail(std::move(detail));
  status.set_placement(std::move(placement));
  status.set_placement_notice(std::move(notice));
  status.set_model_notice(std::move(model_notice));
}

void Replicas::FillReplica(uint32_t r, const v1::GetStatusResponse& own,
                           v1::ReplicaStatus& status) const {
  const Replica& replica = *replicas_[r];
  const bool has_engine = replica.engine != nullptr && !replica.ended;
  status.set_replica(r);
  status.set_state(replica.leaving ? "leaving" : has_engine ? own.state() : replica.state);
  status.set_detail(has_engine ? own.detail() : replica.detail);
  status.set_placement(own.placement());
  for (const v1::WorkerStatus& worker : own.workers()) status.add_workers(worker.name());
  *status.mutable_scheduler() = own.scheduler();
  status.set_recoveries(own.recoveries());
  status.set_requests(replica.given);
  status.set_prefix_requests(replica.given_known);
  const bool apart = std::ranges::any_of(replicas_, [](const auto& other) {
    return other->start.role == ReplicaRole::kPrompts && !other->gone;
  });
  status.set_role(std::string(RoleName(apart ? replica.start.role : ReplicaRole::kBoth)));
  if (replica.engine == nullptr) return;
  status.set_moved_away(replica.engine->moved_away());
  status.set_handed_over(replica.engine->handed_over());
  status.set_kv_sent_bytes(replica.engine->kv_sent_bytes());
  status.set_kv_received_bytes(replica.engine->kv_received_bytes());
}

}  // namespace tandem::gateway
