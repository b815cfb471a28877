// Places, blocks and fair shares of the running sequences (docs/decisions/0017).
#include "services/gateway/scheduler/running_set.h"

#include <algorithm>
#include <tuple>

namespace tandem::gateway {
namespace {

// An answer of at most this many tokens soon frees its place.
constexpr uint32_t kBriefAnswer = 16;

}  // namespace

bool RunningSet::Remove(const Sequence& sequence) {
  const bool was_running = std::erase(running_, &sequence) > 0;
  if (was_running) tenants_.Stopped(sequence.tenant);
  return was_running;
}

void RunningSet::Clear() {
  running_.clear();
  lookup_.reset();  // a new tree restarts its version
  found_ = {};
}

bool RunningSet::HasPlace(const Tenant& tenant) const {
  const size_t taken = running_.size() + held_back_.size();
  return taken < max_running_ &&
         taken + tenants_.NumKeptFromOthers(tenant, max_running_) < max_running_;
}

bool RunningSet::IsBeingComputed(const Sequence& sequence) const {
  if (!sequence.use_prefix_cache) return false;
  const uint32_t max_reused = sequence.MaxReused();
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* other) {
    // A sequence never waits for another tenant's turn, or for one that goes after it.
    if (&other->tenant != &sequence.tenant || other->priority > sequence.priority ||
        other->arrival > sequence.arrival || other->prefix_scope != sequence.prefix_scope) {
      return false;
    }
    // Rarely true of decoding sequences, and cheap to check.
    if (!other->blocks.WillPublish(max_reused / pools_.block_tokens)) return false;
    const uint32_t most = std::min(max_reused, other->num_known);
    const auto begin = sequence.tokens.begin();
    const auto differs = std::mismatch(begin, begin + most, other->tokens.begin()).first;
    const auto num_same = static_cast<uint32_t>(differs - begin);
    return other->blocks.WillPublish(num_same / pools_.block_tokens);
  });
}

bool RunningSet::Fits(const Sequence& sequence, const Blocks& more) {
  Blocks due = {};
  for (const Sequence* running : running_) AddDue(*running, due);
  for (const Sequence* held_back : held_back_) AddDue(*held_back, due);
  if (!running_.empty() && !AreAvailable(due, more)) return false;
  LookUp(sequence);
  if (running_.empty()) return true;
  AddDue(sequence, due);
  // Blocks that other sequences hold need no allocation.
  const auto num_found = static_cast<uint32_t>(found_.nodes.size());
  due[kGlobalGroup] -= num_found - pools_.NumUnheld(found_, kGlobalGroup);
  due[kWindowGroup] -= num_found - found_.first_window - pools_.NumUnheld(found_, kWindowGroup);
  return AreAvailable(due, more);
}

void RunningSet::LookUp(const Sequence& sequence) {
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
  pools_.Find(sequence.prefix_scope, sequence.tokens, sequence.MaxReused(), found_);
  const auto end = [this] {
    return static_cast<uint32_t>(found_.nodes.size()) * pools_.block_tokens;
  };
  // A picture's last rows see its first ones, even before their window.
  for (const PictureSpan* picture = sequence.PictureAcross(end());
       picture != nullptr && !pools_.FindWindowFrom(picture->first, found_);
       picture = sequence.PictureAcross(end())) {
    pools_.Find(sequence.prefix_scope, sequence.tokens, picture->first, found_);
  }
}

void RunningSet::AddDue(const Sequence& sequence, Blocks& due) const {
  const uint32_t all = pools_.BlocksFor(sequence.tokens.size());
  const uint32_t window =
      std::min(all, pools_.WindowBlocksFor(std::min(sequence.num_remaining(), chunk_rows_)));
  const uint32_t want[kNumKvGroups] = {all, window};
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    const uint32_t held = sequence.blocks.num_held(group);
    if (want[group] > held) due[group] += want[group] - held;
  }
}

bool RunningSet::AreAvailable(const Blocks& due, const Blocks& more) const {
  return due[kGlobalGroup] <= pools_.pools[kGlobalGroup].num_available() + more[kGlobalGroup] &&
         due[kWindowGroup] <= pools_.pools[kWindowGroup].num_available() + more[kWindowGroup];
}

void RunningSet::Add(Sequence& sequence) {
  running_.push_back(&sequence);
  sequence.admitted_step = step_id_;
  tenants_.Started(sequence.tenant, sequence.admitted_step);
  if (!found_.nodes.empty()) {
    sequence.blocks.Share(found_);
    sequence.num_computed = static_cast<uint32_t>(found_.nodes.size()) * pools_.block_tokens;
  }
  if (sequence.furthest <= sequence.num_computed) return;
  const uint32_t again = sequence.furthest - sequence.num_computed;
  sequence.safe_until = sequence.furthest + (again > chunk_rows_ ? again : 1);
}

bool RunningSet::ReleaseUnpublished() {
  bool any = false;
  for (Sequence* sequence : running_) any |= sequence->blocks.ReleaseUnpublished();
  return any;
}

void RunningSet::CountBlocks() {
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

RunningSet::Blocks RunningSet::BlocksOf(const Sequence& sequence) const {
  Blocks blocks = {};
  AddDue(sequence, blocks);
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    blocks[group] += sequence.blocks.num_held(group);
  }
  return blocks;
}

double RunningSet::UsageOf(const Tenant& tenant, const Sequence* more, const Sequence* less) const {
  const int change = (more != nullptr ? 1 : 0) - (less != nullptr ? 1 : 0);
  double usage = static_cast<double>(static_cast<int>(tenant.num_running) + change) / max_running_;
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    double blocks = tenant.num_running > 0 ? static_cast<double>(tenant.blocks[group]) : 0.0;
    if (more != nullptr) blocks += static_cast<double>(BlocksOf(*more)[group]);
    if (less != nullptr) blocks -= static_cast<double>(BlocksOf(*less)[group]);
    usage = std::max(usage, blocks / pools_.pools[group].num_blocks());
  }
  return usage;
}

bool RunningSet::MayTake(const Sequence& sequence, const Sequence& victim) const {
  const Tenant& own = sequence.tenant;
  const Tenant& other = victim.tenant;
  // It was admitted in this step, or has not yet caught up after its last preemption.
  if (victim.admitted_step >= step_id_ || victim.num_computed < victim.safe_until) return false;
  if (victim.priority != sequence.priority) return victim.priority > sequence.priority;
  if (&own == &other) return false;
  const double usage = UsageOf(own, &sequence, nullptr);
  if (usage <= tenants_.ShareOf(own) &&
      UsageOf(other, nullptr, nullptr) > tenants_.ShareOf(other)) {
    return true;
  }
  if (UsageOf(other, nullptr, &victim) / other.weight >= usage / own.weight) return true;
  // More tenants than places: turns.
  if (own.num_running > 0) return false;
  const bool brief = sequence.num_remaining() <= chunk_rows_ &&
                     (sequence.pooled || sequence.max_answer <= kBriefAnswer);
  const double ahead = other.virtual_time - own.virtual_time;
  return ahead >= (brief ? 0.0 : static_cast<double>(chunk_rows_));
}

Sequence* RunningSet::FindVictim(const Sequence& sequence) const {
  Sequence* best = nullptr;
  double best_usage = 0.0;
  for (Sequence* victim : running_) {
    if (!MayTake(sequence, *victim)) continue;
    const double usage = UsageOf(victim->tenant, nullptr, nullptr) / victim->tenant.weight;
    const auto rank = std::make_tuple(victim->priority, usage, victim->arrival);
    if (best != nullptr && rank <= std::make_tuple(best->priority, best_usage, best->arrival)) {
      continue;
    }
    best = victim;
    best_usage = usage;
  }
  return best;
}

bool RunningSet::CouldFit(const Sequence& sequence) const {
  Blocks due = {};
  AddDue(sequence, due);
  Blocks available = {};
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

// The one of the higher priority number gives way.  Of two equal ones of one tenant the younger does.  Of two tenants, the one that holds more of
// the KV cache by weight.  A sequence that was preempted for another tenant before is safe until it
// has caught up (as in MayTake), unless no sequence could go on.
bool RunningSet::GivesWay(const Sequence& victim, const Sequence& sequence, bool stuck) const {
  if (victim.priority != sequence.priority) return victim.priority > sequence.priority;
  if (&victim.tenant == &sequence.tenant) return victim.arrival > sequence.arrival;
  if (!stuck && victim.num_computed < victim.safe_until) return false;
  const double victims = KvUsageOf(victim.tenant);
  const double own = KvUsageOf(sequence.tenant);
  return victims > own || (victims == own && victim.arrival > sequence.arrival);
}

double RunningSet::KvUsageOf(const Tenant& tenant) const {
  double usage = 0.0;
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    usage = std::max(usage, static_cast<double>(tenant.blocks[group]) /
                                pools_.pools[group].num_blocks() / tenant.weight);
  }
  return usage;
}

bool RunningSet::CouldMakeWayFor(const Sequence& sequence) {
  const bool goes_first = std::ranges::any_of(
      running_, [&](const Sequence* other) { return other->priority > sequence.priority; });
  if (running_.empty() || (tenants_.num_active() < 2 && !goes_first)) return false;
  CountBlocks();
  return CouldFit(sequence);
}

Sequence* RunningSet::VictimFor(const Sequence& sequence) {
  CountBlocks();
  return FindVictim(sequence);
}

Sequence* RunningSet::VictimForRow(const Sequence& sequence, bool stuck) {
  if (tenants_.num_active() > 1) CountBlocks();
  Sequence* victim = nullptr;
  for (Sequence* running : running_) {
    if (GivesWay(*running, victim == nullptr ? sequence : *victim, stuck)) victim = running;
  }
  return victim;
}

}  // namespace tandem::gateway
