// The running sequences.  Decides which waiting sequences fit beside them, and which running ones
// give way to others.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "services/common/kv/sequence_blocks.h"
#include "services/gateway/scheduler/scheduler_counters.h"
#include "services/gateway/scheduler/sequence.h"
#include "services/gateway/scheduler/tenants.h"

namespace tandem::gateway {

// The scheduler preempts and plans; this class only decides and keeps the list.  Single-thread.
class RunningSet {
 public:
  using Blocks = std::array<uint64_t, kNumKvGroups>;  // by KvGroup

  // All borrowed; must outlive this.  Counts prefix_lookups.
  RunningSet(KvPools& pools, Tenants& tenants, SchedulerCounters& counters)
      : pools_(pools), tenants_(tenants), counters_(counters) {}

  // `max_running`: sequences at once.  `chunk_rows`: of one sequence's prompt in a step.
  void SetLimits(uint32_t max_running, uint32_t chunk_rows) {
    max_running_ = max_running;
    chunk_rows_ = chunk_rows;
  }
  // Step `step_id` is planned from now on; no sequence is held back.
  void BeginStep(uint64_t step_id) {
    step_id_ = step_id;
    held_back_.clear();
  }

  // In no particular order.
  const std::vector<Sequence*>& sequences() const { return running_; }
  bool empty() const { return running_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(running_.size()); }

  // Adds a sequence, which starts after the prefix that Fits found.
  void Add(Sequence& sequence);
  // False if it does not run.
  bool Remove(const Sequence& sequence);
  // The KV cache is new and empty.
  void Clear();

  // Whether a sequence of `tenant` may run: a place is free that is not kept for another tenant.
  bool HasPlace(const Tenant& tenant) const;
  // Whether a place is free, kept or not.
  bool HasAnyPlace() const { return running_.size() + held_back_.size() < max_running_; }
  // Whether an older running sequence of the same tenant, whose priority number is not higher, will
  // publish more blocks of the prefix of `sequence`.
  bool IsBeingComputed(const Sequence& sequence) const;
  // Keeps a place and blocks for a sequence that waits for a prefix, in this step.
  void HoldBack(const Sequence& sequence) { held_back_.push_back(&sequence); }
  // Looks up the prefix of `sequence` and returns whether it fits beside those that run.  `more`:
  // blocks that could be freed for it.
  bool Fits(const Sequence& sequence, const Blocks& more = {});
  // Gives back blocks that are held only to be published; false if no block is.
  bool ReleaseUnpublished();

  // Whether `sequence`, which waits, would fit if those that it may preempt were gone: an estimate.
  bool CouldMakeWayFor(const Sequence& sequence);
  // A sequence of another tenant that `sequence`, which waits, may preempt; nullptr: there is none.
  Sequence* VictimFor(const Sequence& sequence);
  // A sequence that gives its blocks to a row of `sequence`, which runs; nullptr: there is none.
  // `stuck`: no sequence could go on, so fair shares are ignored.
  Sequence* VictimForRow(const Sequence& sequence, bool stuck);

 private:
  // Whether `sequence`, which waits, may preempt `victim`.
  bool MayTake(const Sequence& sequence, const Sequence& victim) const;
  Sequence* FindVictim(const Sequence& sequence) const;
  bool CouldFit(const Sequence& sequence) const;
  bool GivesWay(const Sequence& victim, const Sequence& sequence, bool stuck) const;
  // Fills Tenant::blocks of the tenants with running sequences.
  void CountBlocks();
  // Blocks that a sequence holds, and those that it still needs for its tokens.
  Blocks BlocksOf(const Sequence& sequence) const;
  double KvUsageOf(const Tenant& tenant) const;  // by weight
  // Fraction of the places, or of a group's blocks if that is more, that a tenant's running
  // sequences take; counting `more` and not `less`.
  double UsageOf(const Tenant& tenant, const Sequence* more, const Sequence* less) const;
  // Looks up the cached prefix of `sequence` into found_.  Repeated calls are cheap until another
  // sequence is looked up or the cache changes.
  void LookUp(const Sequence& sequence);
  // Adds the blocks that a sequence still needs for its tokens.
  void AddDue(const Sequence& sequence, Blocks& due) const;
  bool AreAvailable(const Blocks& due, const Blocks& more) const;

  KvPools& pools_;               // Borrowed.
  Tenants& tenants_;             // Borrowed.
  SchedulerCounters& counters_;  // Borrowed.
  uint32_t max_running_ = 0;
  uint32_t chunk_rows_ = 0;
  uint64_t step_id_ = 0;
  std::vector<Sequence*> running_;
  std::vector<const Sequence*> held_back_;  // waiting for a prefix
  // The sequence and the state of the cache that found_ is for.
  struct Lookup {
    uint64_t arrival = 0;
    size_t num_tokens = 0;
    uint32_t max_reused = 0;
    uint64_t tree_version = 0;
    bool operator==(const Lookup&) const = default;
  };
  std::optional<Lookup> lookup_;
  CachedPrefix found_;
};

}  // namespace tandem::gateway
