// Decides which rows the next step computes.
//
// Every sequence is a list of tokens and a count of how many of them are in the KV cache; the rest
// remain.  One remaining token is a decode row, more are a prompt.  A step is filled in this order
// until its row budget is used up:
//
//   1. decode rows of running sequences, least recently served first
//   2. tenant by tenant, in the order of their turns (tenants.h): prompt chunks of running
//   sequences,
//      at most chunk_rows each, then sequences admitted from the waiting queue in order of arrival
//
//      waiting (by tenant, arrival)    running (at most max_sequences)
//    Add -> [ 9 | 8 | 7 ] ---admit---> [ 3: decode | 5: decode | 6: 512 of 2000 ] -> rows
//             ^                                                   |
//             +------- preempt: no block free, or over its share -+
//
// Fairness (decision 0017): once the first tenant in turn has prompt rows in a step, the others
// together add at most as many and a few more, so that the step takes about twice as long as its
// own rows would.  A sequence that finds no place or no blocks has sequences of other tenants
// preempted: of one that has more than its share while its own tenant has less, or of one whose
// turn is over (scheduler_fairness.cc).  With one tenant none of this ever happens.
//
// KV blocks are assigned as rows are chosen.  When none is free, the youngest running sequence of
// the tenant that holds most, or among those of one tenant the youngest that is younger than the
// one in need, gives all of its blocks back and waits again at its place by arrival; its tokens,
// answer included, are computed anew later.  If there is none, the one in need sits the step out.
// The oldest of who holds least can thus always go on, and since no sequence is let in that would
// not fit alone, every one finishes.  Admission looks ahead: a sequence is admitted when its tokens
// fit beside what the running ones still have to compute.
//
// A step may be scheduled while the one before it is under way.  A sequence whose token that one
// chooses goes on with kNoToken in the token's place, and its row is fed with the device's guess:
//
//   step      1              2              3                 4
//   rows      p0 p1 p2 -> ?  feed(1) -> ?   feed(2) -> ?      token of p4 -> ?
//   decided                  p3: as guessed  p4: otherwise    (3: void)
//
// When the guess was wrong, what the step under way makes of it does not count, and the row is
// computed anew: its KV is overwritten in place.  Blocks are given back at once, for steps run one
// after another: those scheduled later write them after those under way have read them.  If a
// sequence that must wait for its token (no GuessRule) will go on, the whole step waits, so that
// it is not served at half its neighbours' rate.
//
// Beginnings are shared: when a step is done, the whole blocks that it completed are published, and
// a sequence that is admitted, for the first time or again, starts after the longest beginning of
// its tokens that is held or cached (kv_pools.h).  Cached blocks that nobody holds count as free
// wherever there is talk of free blocks.  A sequence that begins as an older running one of its
// tenant, which has not computed that yet, is held back until it has; others are admitted past it
// meanwhile, but its place among those running, and blocks for it, are kept.
//
// After a worker loss RecomputeAll sends every running sequence back to the queue the same way.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/kv/sequence_blocks.h"
#include "services/common/worker/step_batch.h"
#include "services/gateway/scheduler/queue_places.h"
#include "services/gateway/scheduler/scheduler_counters.h"
#include "services/gateway/scheduler/sequence.h"
#include "services/gateway/scheduler/step_builder.h"
#include "services/gateway/scheduler/tenants.h"

namespace tandem::gateway {

struct SchedulerOptions {
  StepLimits limits;
  uint32_t max_sequences = 16;  // running together; cut to the limits'
  uint32_t max_rows = 512;      // in one step; cut to the limits'
  uint32_t chunk_rows = 512;    // of one sequence's prompt in one step
  uint32_t max_waiting = 128;   // beyond those running (QueuePlaces)
  bool prefix_cache = true;     // no: every token of every sequence is computed
};

// What is there now.
struct SchedulerLoad {
  uint32_t running = 0;
  uint32_t waiting = 0;
  uint32_t blocks_total[kNumKvGroups] = {};
  uint32_t blocks_used[kNumKvGroups] = {};     // held by running sequences
  uint32_t blocks_cached[kNumKvGroups] = {};   // by the prefix cache alone
  uint64_t blocks_evicted[kNumKvGroups] = {};  // from the prefix cache, since start
};

// Pure data: no clock, no device, no randomness.  Single-thread.
class Scheduler {
 public:
  // INVALID_ARGUMENT names a limit that is zero or contradicts another.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(const SchedulerOptions& options);

  // Queues a sequence.  RESOURCE_EXHAUSTED: there is no place for one more of its tenant among
  // max_sequences + max_waiting (QueuePlaces).
  // INVALID_ARGUMENT: an empty prompt, an id in use, or a prompt that leaves no room for a token.
  absl::Status Add(SequenceSpec spec);
  // Forgets a sequence and frees its blocks; nothing happens if there is none of that id.
  void Remove(uint64_t id);

  // The next step, or nullptr when there is nothing to compute, or nothing before the step under
  // way is done.  Its id was never given to another step, not even one that failed.  It is under
  // way, and valid, until it was the oldest at StepDone or StepFailed, or until RecomputeAll.
  // REQUIRES one step under way at most.
  const ScheduledStep* Schedule();
  // The rows of the oldest step under way are in the KV cache.
  void StepDone();
  // The oldest step under way was refused, and its sequences are going to be removed.
  void StepRefused();
  // The rows of the oldest step under way, of those sequences that are not removed, must be
  // computed anew.  REQUIRES it is the only one.
  void StepFailed();
  // Whether the token that a finished step chose for a sequence is valid: false if the step started
  // from a rejected token, or if the sequence has been removed.
  bool IsValid(uint64_t step_id, uint64_t id) const;
  // Adds the token decided for a sequence; `needs` are those of the token to follow.  `guess`: what
  // the device guessed and fed to the step under way, if there is one.
  // REQUIRES the step done last had a sampled output of the sequence, which IsValid and not yet
  // appended, and fewer tokens than max_sequence_len() and max_answer allow.
  void Append(uint64_t id, uint32_t token, OutputNeeds needs, uint32_t guess = kNoToken);

  // What is in the KV cache cannot be trusted: no sequence is given what was computed up to now but
  // those that have it.
  void ForgetPrefixes() { pools_.ForgetAll(); }

  // The KV cache is lost: all running sequences wait again, in order of arrival, with their
  // tokens.  `limits` are those of the recovered workers.  Returns (and forgets) the ids of
  // sequences that can no longer fit.  INVALID_ARGUMENT as Create.
  absl::StatusOr<std::vector<uint64_t>> RecomputeAll(const StepLimits& limits);

  // Tokens a sequence can have at most, prompt included: the context, or what the pools hold.
  uint32_t max_sequence_len() const { return max_sequence_len_; }
  bool empty() const { return sequences_.empty(); }
  SchedulerLoad load() const;
  const SchedulerCounters& counters() const { return counters_; }
  const KvPools& pools() const { return pools_; }

 private:
  explicit Scheduler(const SchedulerOptions& options);

  // Lets the guesses of the step under way stand for its tokens; false when a sequence must wait.
  bool TakeGuesses(const ScheduledStep& under_way);
  bool GoesOn(const Sequence& sequence) const;
  Sequence* Find(uint64_t id) const;
  // Counts the planned rows as computed.
  void Issue(uint64_t step_id);
  void PlanStep();
  void PlanDecodes();
  void PlanPromptsOf(const Tenant& tenant);
  void PlanIfRunning(Sequence& sequence);
  // Prompt rows of a tenant in the plan.
  uint32_t NumPromptRows(const Tenant& tenant) const;
  // Rows that a step computes in next to no time beside others.
  uint32_t FreeRows() const;
  void AdmitWaiting(Tenant& tenant);
  // Whether an older running sequence of the same tenant is about to publish more of the blocks
  // that `sequence` begins with.
  bool IsBeingComputed(const Sequence& sequence) const;
  // Whether a place among those running is free for a sequence of `tenant`.
  bool HasPlace(const Tenant& tenant) const;
  // Whether `sequence`, whose beginning is then in found_, fits beside those that run.
  bool CanAdmit(const Sequence& sequence);

  // Fair shares (scheduler_fairness.cc).
  // Preempts sequences of other tenants until `sequence` has a place and fits; false, with nothing
  // preempted in vain as far as can be told, if there are none that it may have preempted.
  bool MakeWay(const Sequence& sequence);
  // Whether `sequence`, which waits, may have `victim` preempted.
  bool MayTake(const Sequence& sequence, const Sequence& victim) const;
  Sequence* FindVictim(const Sequence& sequence) const;
  bool CouldFit(const Sequence& sequence) const;
  // Fills Tenant::blocks of those that run.
  void CountBlocks();
  // Blocks that a sequence holds, or is going to need for the tokens it has.
  std::array<uint64_t, kNumKvGroups> BlocksOf(const Sequence& sequence) const;
  double KvUsageOf(const Tenant& tenant) const;  // by weight
  // Part of places or of a group's blocks, whichever is more, that a tenant's running sequences
  // take, with `more` and without `less`.
  double UsageOf(const Tenant& tenant, const Sequence* more, const Sequence* less) const;
  uint32_t max_running() const;
  // What is cached of the beginning of `sequence`, into found_; it is there already unless another
  // was looked for since, or what is cached has changed.
  void LookUp(const Sequence& sequence);
  // Blocks that a running sequence still needs for the tokens it has.
  void AddDue(const Sequence& sequence, std::array<uint64_t, kNumKvGroups>& due) const;
  bool AreAvailable(const std::array<uint64_t, kNumKvGroups>& due) const;
  void Admit(Sequence& sequence);
  // Blocks held for being published are given back; false if there are none.
  bool ReleaseUnpublished();
  // Plans as many rows of a running sequence as fit; none when a budget or the blocks are used up.
  void PlanRows(Sequence& sequence);
  // Rows of `sequence` within the step's budgets of rows, outputs and table entries.
  uint32_t FitBudgets(const Sequence& sequence) const;
  // Preempts until one more row of `sequence` can be covered; false when nobody who must give way
  // to it runs.
  bool MakeRoom(const Sequence& sequence);
  bool GivesWay(const Sequence& victim, const Sequence& sequence) const;
  void Preempt(Sequence& victim);
  void AddUsage(const PlannedRows& planned, int sign);

  SchedulerOptions options_;
  KvPools pools_;  // outlives sequences_
  uint32_t max_sequence_len_;
  std::unordered_map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  Tenants tenants_;  // with the waiting sequences
  QueuePlaces places_;
  std::vector<Sequence*> running_;  // in no particular order
  uint64_t num_arrivals_ = 0;
  uint64_t last_step_id_ = 0;  // never used twice, failed steps included
  SchedulerCounters counters_;
  std::deque<const ScheduledStep*> under_way_;  // oldest first; at most two

  // The step being planned, and what of its budgets is used.
  std::vector<PlannedRows> plan_;
  std::vector<Sequence*> order_;
  std::vector<const Sequence*> held_back_;  // the first of those waiting of a tenant
  bool stuck_ = false;                      // nobody could go on: shares aside, somebody must
  // For whom found_ was looked up, and when.
  struct Lookup {
    uint64_t arrival = 0;
    size_t num_tokens = 0;
    uint32_t max_reused = 0;
    uint64_t tree_version = 0;
    bool operator==(const Lookup&) const = default;
  };
  std::optional<Lookup> lookup_;
  CachedPrefix found_;
  uint32_t rows_used_ = 0;
  uint32_t max_rows_ = 0;  // of this step
  uint32_t outputs_used_ = 0;
  uint32_t logit_samples_ = 0;  // sampled outputs that need every logit
  uint64_t table_used_ = 0;
  StepBuilder builders_[2];  // by step id, in turn
};

}  // namespace tandem::gateway
