// Who leaves the waiting queue.
#include "services/gateway/scheduler/scheduler.h"

#include <algorithm>
#include <cstddef>

namespace tandem::gateway {

void Scheduler::AdmitWaiting() {
  const uint32_t max_running = std::min({options_.max_sequences, options_.limits.max_sequences,
                                         options_.max_rows, options_.limits.max_rows});
  held_back_.clear();
  while (held_back_.size() < waiting_.size() && running_.size() + held_back_.size() < max_running) {
    const auto next = waiting_.begin() + static_cast<std::ptrdiff_t>(held_back_.size());
    Sequence& sequence = **next;
    // Set aside while its token is being chosen: its rows are computed with that token.
    if (sequence.num_known < sequence.tokens.size()) return;
    if (IsBeingComputed(sequence)) {
      held_back_.push_back(&sequence);
      continue;
    }
    if (!CanAdmit(sequence) && !(ReleaseUnpublished() && CanAdmit(sequence))) return;
    waiting_.erase(next);
    Admit(sequence);
    PlanRows(sequence);
  }
}

bool Scheduler::IsBeingComputed(const Sequence& sequence) const {
  if (!sequence.use_prefix_cache) return false;
  const uint32_t max_reused = sequence.MaxReused();
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* other) {
    if (other->arrival > sequence.arrival) return false;
    // Seldom true of those that decode, and quickly told.
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
  // What others hold is there already, and need not be had.
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
  ++num_lookups_;
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
  if (found_.nodes.empty()) return;
  sequence.blocks.Share(found_);
  sequence.num_computed = static_cast<uint32_t>(found_.nodes.size()) * pools_.block_tokens;
}

bool Scheduler::ReleaseUnpublished() {
  bool any = false;
  for (Sequence* sequence : running_) any |= sequence->blocks.ReleaseUnpublished();
  return any;
}

}  // namespace tandem::gateway
