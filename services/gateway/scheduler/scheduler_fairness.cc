// Which running sequence gives way to another tenant's (docs/decisions/0017).
#include <algorithm>

#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {
namespace {

// An answer of at most this many tokens soon frees its place.
constexpr uint32_t kBriefAnswer = 16;

}  // namespace

uint32_t Scheduler::FreeRows() const { return std::max(1u, options_.chunk_rows / 16); }

void Scheduler::CountBlocks() {
  for (Sequence* sequence : running_) {
    for (uint64_t& blocks : sequence->tenant.blocks) blocks = 0;
  }
  for (Sequence* sequence : running_) {
    const auto needs = BlocksOf(*sequence);
    for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
      sequence->tenant.blocks[group] += needs[group];
    }
  }
}

std::array<uint64_t, kNumKvGroups> Scheduler::BlocksOf(const Sequence& sequence) const {
  std::array<uint64_t, kNumKvGroups> blocks = {};
  AddDue(sequence, blocks);
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    blocks[group] += sequence.blocks.num_held(group);
  }
  return blocks;
}

double Scheduler::UsageOf(const Tenant& tenant, const Sequence* more, const Sequence* less) const {
  const int change = (more != nullptr ? 1 : 0) - (less != nullptr ? 1 : 0);
  double usage = static_cast<double>(static_cast<int>(tenant.num_running) + change) / max_running();
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    double blocks = tenant.num_running > 0 ? static_cast<double>(tenant.blocks[group]) : 0.0;
    if (more != nullptr) blocks += static_cast<double>(BlocksOf(*more)[group]);
    if (less != nullptr) blocks -= static_cast<double>(BlocksOf(*less)[group]);
    usage = std::max(usage, blocks / pools_.pools[group].num_blocks());
  }
  return usage;
}

bool Scheduler::MayTake(const Sequence& sequence, const Sequence& victim) const {
  const Tenant& own = sequence.tenant;
  const Tenant& other = victim.tenant;
  // It was admitted in this step, or has not yet caught up after its last preemption.
  if (&own == &other || victim.admitted_step > last_step_id_ ||
      victim.num_computed < victim.safe_until) {
    return false;
  }
  const double usage = UsageOf(own, &sequence, nullptr);
  if (usage <= tenants_.ShareOf(own) &&
      UsageOf(other, nullptr, nullptr) > tenants_.ShareOf(other)) {
    return true;
  }
  if (UsageOf(other, nullptr, &victim) / other.weight >= usage / own.weight) return true;
  // More tenants than places: turns.
  if (own.num_running > 0) return false;
  const bool brief = sequence.num_remaining() <= options_.chunk_rows &&
                     (sequence.pool || sequence.max_answer <= kBriefAnswer);
  const double ahead = other.virtual_time - own.virtual_time;
  return ahead >= (brief ? 0.0 : static_cast<double>(options_.chunk_rows));
}

Sequence* Scheduler::FindVictim(const Sequence& sequence) const {
  Sequence* best = nullptr;
  double best_usage = 0.0;
  for (Sequence* victim : running_) {
    if (!MayTake(sequence, *victim)) continue;
    const double usage = UsageOf(victim->tenant, nullptr, nullptr) / victim->tenant.weight;
    const bool better = best == nullptr || usage > best_usage ||
                        (usage == best_usage && victim->arrival > best->arrival);
    if (!better) continue;
    best = victim;
    best_usage = usage;
  }
  return best;
}

bool Scheduler::CouldFit(const Sequence& sequence) const {
  std::array<uint64_t, kNumKvGroups> due = {};
  AddDue(sequence, due);
  std::array<uint64_t, kNumKvGroups> available = {};
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    available[group] = pools_.pools[group].num_available();
  }
  for (const Sequence* held_back : held_back_) AddDue(*held_back, due);
  for (const Sequence* running : running_) {
    if (!MayTake(sequence, *running)) {
      AddDue(*running, due);
      continue;
    }
    for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
      available[group] += running->blocks.num_held(group);
    }
  }
  // The prefix that the sequence would find in the cache is ignored; that refuses few sequences.
  return due[kGlobalGroup] <= available[kGlobalGroup] &&
         due[kWindowGroup] <= available[kWindowGroup];
}

bool Scheduler::MakeWay(const Sequence& sequence) {
  if (tenants_.num_active() < 2 || running_.empty()) return false;
  CountBlocks();
  if (!CouldFit(sequence)) return false;
  while (true) {
    if (Sequence* const victim = FindVictim(sequence); victim != nullptr) {
      ++counters_.fair_preemptions;
      Preempt(*victim);
    } else {
      return false;
    }
    CountBlocks();
    if (running_.size() + held_back_.size() < max_running() && CanAdmit(sequence)) return true;
  }
}

// Of two sequences of one tenant the younger gives way.  Of two tenants, the one that holds more of
// the KV cache by weight.  A sequence that was preempted for another tenant before is safe until it
// has caught up (as in MayTake), unless no sequence could go on.
bool Scheduler::GivesWay(const Sequence& victim, const Sequence& sequence) const {
  if (&victim.tenant == &sequence.tenant) return victim.arrival > sequence.arrival;
  if (!stuck_ && victim.num_computed < victim.safe_until) return false;
  const double victims = KvUsageOf(victim.tenant);
  const double own = KvUsageOf(sequence.tenant);
  return victims > own || (victims == own && victim.arrival > sequence.arrival);
}

double Scheduler::KvUsageOf(const Tenant& tenant) const {
  double usage = 0.0;
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    usage = std::max(usage, static_cast<double>(tenant.blocks[group]) /
                                pools_.pools[group].num_blocks() / tenant.weight);
  }
  return usage;
}

}  // namespace tandem::gateway
