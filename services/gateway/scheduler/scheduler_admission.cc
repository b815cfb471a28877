// Admission: which sequences leave the waiting queue.
#include "services/gateway/scheduler/scheduler.h"

#include <algorithm>
#include <cstddef>

namespace tandem::gateway {

uint32_t Scheduler::max_running() const {
  return std::min({options_.max_sequences, options_.limits.max_sequences, options_.max_rows,
                   options_.limits.max_rows});
}

bool Scheduler::HasPlace(const Tenant& tenant) const {
  const size_t taken = running_.size() + held_back_.size();
  return taken < max_running() &&
         taken + tenants_.NumKeptFromOthers(tenant, max_running()) < max_running();
}

void Scheduler::AdmitWaiting(Tenant& tenant) {
  size_t num_held_back = 0;
  while (num_held_back < tenant.waiting.size()) {
    Sequence& sequence = *tenant.waiting[num_held_back];
    // Preempted while the sampler chooses its token: wait for that token.
    if (sequence.num_known < sequence.tokens.size()) return;
    const bool has_place = HasPlace(tenant);
    if (has_place && IsBeingComputed(sequence)) {
      held_back_.push_back(&sequence);
      ++num_held_back;
      continue;
    }
    const bool fits =
        has_place && (CanAdmit(sequence) || (ReleaseUnpublished() && CanAdmit(sequence)));
    if (!fits && !MakeWay(sequence)) return;
    tenant.waiting.erase(tenant.waiting.begin() + static_cast<std::ptrdiff_t>(num_held_back));
    Admit(sequence);
    PlanRows(sequence);
  }
}

bool Scheduler::IsBeingComputed(const Sequence& sequence) const {
  if (!sequence.use_prefix_cache) return false;
  const uint32_t max_reused = sequence.MaxReused();
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* other) {
    // A sequence never waits for another tenant's turn.
    if (&other->tenant != &sequence.tenant || other->arrival > sequence.arrival) return false;
    // Rarely true of decoding sequences, and cheap to check.
    if (!other->blocks.WillPublish(max_reused / pools_.block_tokens)) return false;
    const uint32_t most = std::min(max_reused, other->num_known);
    const auto begin = sequence.tokens.begin();
    const auto differs = std::mismatch(begin, begin + most, other->tokens.begin()).first;
    const auto num_same = static_cast<uint32_t>(differs - begin);
    return other->blocks.WillPublish(num_same / pools_.block_tokens);
  });
}

bool Scheduler::CanAdmit(const Sequence& sequence) {
  std::array<uint64_t, kNumKvGroups> due = {};
  for (const Sequence* running : running_) AddDue(*running, due);
  for (const Sequence* held_back : held_back_) AddDue(*held_back, due);
  if (!running_.empty() && !AreAvailable(due)) return false;
  LookUp(sequence);
  if (running_.empty()) return true;
  AddDue(sequence, due);
  // Blocks that other sequences hold need no allocation.
  const auto num_found = static_cast<uint32_t>(found_.nodes.size());
  due[kGlobalGroup] -= num_found - pools_.NumUnheld(found_, kGlobalGroup);
  due[kWindowGroup] -= num_found - found_.first_window - pools_.NumUnheld(found_, kWindowGroup);
  return AreAvailable(due);
}

void Scheduler::LookUp(const Sequence& sequence) {
  if (!sequence.use_prefix_cache) {
    lookup_.reset();
    found_ = {};
    return;
  }
  const Lookup now{sequence.arrival, sequence.tokens.size(), sequence.MaxReused(),
                   pools_.tree->version()};
  if (lookup_ == now) return;
  lookup_ = now;
  ++counters_.prefix_lookups;
  pools_.Find(/*scope=*/0, sequence.tokens, sequence.MaxReused(), found_);
}

void Scheduler::AddDue(const Sequence& sequence, std::array<uint64_t, kNumKvGroups>& due) const {
  const uint32_t all = pools_.BlocksFor(sequence.tokens.size());
  const uint32_t window = std::min(
      all, pools_.WindowBlocksFor(std::min(sequence.num_remaining(), options_.chunk_rows)));
  const uint32_t want[kNumKvGroups] = {all, window};
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    const uint32_t held = sequence.blocks.num_held(group);
    if (want[group] > held) due[group] += want[group] - held;
  }
}

bool Scheduler::AreAvailable(const std::array<uint64_t, kNumKvGroups>& due) const {
  return due[kGlobalGroup] <= pools_.pools[kGlobalGroup].num_available() &&
         due[kWindowGroup] <= pools_.pools[kWindowGroup].num_available();
}

void Scheduler::Admit(Sequence& sequence) {
  running_.push_back(&sequence);
  sequence.admitted_step = last_step_id_ + 1;
  tenants_.Started(sequence.tenant, sequence.admitted_step);
  if (!found_.nodes.empty()) {
    sequence.blocks.Share(found_);
    sequence.num_computed = static_cast<uint32_t>(found_.nodes.size()) * pools_.block_tokens;
  }
  if (sequence.furthest <= sequence.num_computed) return;
  const uint32_t again = sequence.furthest - sequence.num_computed;
  sequence.safe_until = sequence.furthest + (again > options_.chunk_rows ? again : 1);
}

bool Scheduler::ReleaseUnpublished() {
  bool any = false;
  for (Sequence* sequence : running_) any |= sequence->blocks.ReleaseUnpublished();
  return any;
}

}  // namespace tandem::gateway
