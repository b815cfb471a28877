// Decides which rows the next step computes.
//
// Every sequence is a list of tokens and a count of how many of them are in the KV cache; the rest
// remain.  One remaining token is a decode row, more are a prompt.  A step is filled in this order
// until its row budget is used up:
//
//   1. decode rows of running sequences, least recently served first
//   2. tenant by tenant, in the order of their turns (tenants.h): prompt chunks of running
//      sequences, at most chunk_rows each, then sequences admitted from the waiting queue in order
//      of arrival
//
//      waiting (by tenant, arrival)    running (at most max_sequences)
//    Add -> [ 9 | 8 | 7 ] ---admit---> [ 3: decode | 5: decode | 6: 512 of 2000 ] -> rows
//             ^                                                   |
//             +------- preempt: no block free, or over its share -+
//
// Fairness (decision 0017): if the first tenant in turn has prompt rows in a step, the other
// tenants together add about as many at most.  So the step takes about twice as long as that
// tenant's rows alone.  A waiting sequence without a place or blocks preempts a sequence of another
// tenant: of one that has more than its share while its own tenant has less, or of one whose turn
// is over (running_set.h).  With one tenant nothing of this happens.
//
// Priorities: the sequences of the lowest priority number go first, of all tenants, and give way
// last; tenants share fairly among equals.  While a sequence waits for a place or blocks, none of a
// higher number is admitted.
//
// KV blocks are assigned as rows are chosen.  If no block is free, a victim gives all of its blocks
// back and waits again at its place by arrival; its tokens, answer included, are computed again
// later.  The victim is the youngest running sequence of the tenant that holds most.  Within one
// tenant it is the youngest sequence that is younger than the one in need.  Without a victim the
// sequence in need skips the step.  So the oldest sequence of the tenant that holds least always
// goes on, and because no sequence is admitted that would not fit alone, every sequence finishes.
// Admission looks ahead: a sequence is admitted if its tokens fit beside the rows that the running
// sequences still have to compute.
//
// Lanes: where several devices share the layers, up to kMostUnderWay steps are under way at once.  They
// share no sequence but one whose prompt they compute.
//
// Speculation: a step may be scheduled while the step before it is under way.  A sequence whose
// next token that step chooses continues with kNoToken as its token, and its row is fed with the
// speculative token that the device chose:
//
//   step      1              2                3                 4
//   rows      p0 p1 p2 -> ?  feed(1) -> ?     feed(2) -> ?      token of p4 -> ?
//   decided                  p3: accepted     p4: rejected      (3: void)
//
// When the sampler rejects the token, the results of the step under way are void for the sequence
// and the row is computed again: its KV is overwritten in place.  Blocks are given back at once,
// because steps run one after another: later steps write them after earlier steps have read them.
// If a sequence must wait for its token (it has no GuessRule), the whole step waits, so that the
// sequence is served as often as its neighbours.
//
// Drafts: guesses of drafters are rows too.  They follow the decode row of their sequence in one
// step, and each row's output decides the token after it:
//
//   step      4                  5
//   rows      p5 g6 g7 g8        p8 ...       g: guess
//   decided   p6 p7 p8  -        p9           g6 and g7 were accepted, g8 was not: its row is void
//
// As with speculative tokens, a rejected guess is overwritten in place and its output is ignored.
// The next step waits for the outcome of one with drafted rows.  Guesses for a constrained sequence
// have masks of their own, each for the case that the guesses before it are accepted.
//
// A constrained sequence has a mask for each sampled output, which depends on the token before.  Where
// masks may be late (StepRules::late_mask), it is fed as others are, and its mask is written when its
// token is decided.  If that does not come in time (TakeBack), or the token is rejected, the row is
// computed again.  Otherwise it has no rows until its token is appended.  Its neighbours do not wait for
// it: their steps are queued as usual.  Constrained sequences decode together then: while some do in the
// step under way, the others wait for the next one, because two steps of half of the rows read the
// weights twice.  Tokens that the constraint forces are appended together and form one chunk; outputs
// of rows before the last of them decide nothing.
//
// The rows of a picture see each other, so a chunk ends before a picture or behind it.  A prefix
// from the cache may end within one: its rows were computed with the whole picture.
//
// Prefixes are shared: when a step is done, the whole blocks that it completed are published.  A
// sequence that is admitted, for the first time or again, starts after the longest prefix of its
// tokens that is held or cached (kv_pools.h).  Cached blocks that no sequence holds count as free.
// If an older running sequence of the same tenant, whose priority number is not higher, is about to
// compute a longer prefix of a waiting one, the waiting one is held back until then; others are
// admitted past it meanwhile, but a place and blocks are kept for it.
//
// After a worker loss RecomputeAll sends every running sequence back to the queue the same way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/kv/prefix_scopes.h"
#include "services/common/kv/sequence_blocks.h"
#include "services/common/step/step_batch.h"
#include "services/gateway/scheduler/draft_place.h"
#include "services/gateway/scheduler/kv_imports.h"
#include "services/gateway/scheduler/running_set.h"
#include "services/gateway/scheduler/scheduler_counters.h"
#include "services/gateway/scheduler/sequence.h"
#include "services/gateway/scheduler/step_builder.h"
#include "services/gateway/scheduler/tenants.h"

namespace tandem::gateway {

struct SchedulerOptions {
  StepLimits limits;
  uint32_t max_sequences = 16;  // running at once; the limits may allow fewer
  uint32_t max_rows = 512;      // in one step; the limits may allow fewer
  uint32_t chunk_rows = 512;    // of one sequence's prompt in one step
  bool prefix_cache = true;     // false: every token of every sequence is computed
};

// The state now.
struct SchedulerLoad {
  uint32_t running = 0;
  uint32_t waiting = 0;
  uint32_t blocks_total[kNumKvGroups] = {};
  uint32_t blocks_used[kNumKvGroups] = {};     // held by running sequences
  uint32_t blocks_cached[kNumKvGroups] = {};   // by the prefix cache alone
  uint64_t blocks_evicted[kNumKvGroups] = {};  // from the prefix cache, since start
};

// The whole blocks of a sequence whose rows are computed, and all tokens that are known.
struct PublishedPrefix {
  std::span<const uint32_t> tokens;
  std::span<const uint32_t>
      blocks[kNumKvGroups];  // of the window group leading ones may be kNoBlock
  bool forgotten = false;    // after ForgetPrefixes: no block follows
};

// Steps at once.
inline constexpr uint32_t kMostUnderWay = 4;

using RowLimit = std::function<uint32_t(uint32_t)>;
// Whether a constrained sequence may take a speculative token, so that its mask is written later.
using LateMask = std::function<bool(uint64_t id)>;

// What the next step may have.
struct StepRules {
  // Most prompt rows beside so many decode rows; null: any number.  A few are planned in any case
  // (FreeRows), and in some steps a picture, so prompts always go on.
  RowLimit prompt_rows = nullptr;
  // Sequences that decode in it, where so many decode in all steps together; no further step decodes
  // while as many as that takes are under way.  Null: as many as can.
  RowLimit decoding = nullptr;
  // With so many steps under way, it has no rows of prompts.
  uint32_t prompt_steps = kMostUnderWay;
  LateMask late_mask = nullptr;  // null: none may.  REQUIRES feeds
  // A step behind another takes its speculative tokens: two at most are under way.  If not, it has other
  // sequences' rows, and further rows of prompts.
  bool feeds = true;
};

// Pure data: no clock, no device, no randomness.  Single-thread.
class Scheduler {
 public:
  // INVALID_ARGUMENT names a limit that is zero or contradicts another.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(const SchedulerOptions& options);

  // Queues a sequence, however many wait: admission bounds them.
  // INVALID_ARGUMENT: an empty prompt, an id in use, a prompt that leaves no room for a token, or a
  // picture that has more than max_picture_rows() rows.
  absl::Status Add(SequenceSpec spec);
  // Removes a sequence and frees its blocks.  No effect for an unknown id.
  void Remove(uint64_t id);

  // Removes a sequence that is to go on elsewhere.
  // REQUIRES a sequence whose next token is not being decided, but for lost steps.
  SequenceProgress Take(uint64_t id);
  // Whether it is there, and in no step under way.
  bool CanTake(uint64_t id) const;
  // Whether it has no more rows, so that CanTake is true once its next token is decided.
  void AwaitTake(uint64_t id, bool awaits);
  // Keeps the window blocks that a row at `position` sees, for those who copy them, until rows need
  // them.
  void KeepWindow(uint64_t id, uint32_t position);
  // The KV of a sequence that others may copy, until the next change.
  PublishedPrefix Published(uint64_t id) const;
  // Queues a sequence of another scheduler with the tokens that it has: as if it had come when its
  // import began, so that it does not wait behind others while that holds blocks; without an import,
  // behind all others.  It takes a place whether there is one or not.  INVALID_ARGUMENT as Add.
  absl::Status Adopt(SequenceSpec spec, const SequenceProgress& progress);

  // KV that is copied here for a sequence that will be Adopted (kv_imports.h).  The import ends when
  // the sequence runs, or at KvImports::End; it may be dropped before.
  uint32_t BeginImport(uint64_t id, const std::string& prefix_scope, std::vector<uint32_t> tokens,
                       uint32_t first_window);
  KvImports& imports() { return imports_; }

  // The next step.  nullptr: there is nothing to compute, or nothing until the step under way is
  // done.  Step ids are unique, failed steps included.  The step is under way, and the pointer
  // valid, until StepDone, StepRefused or StepFailed ends it (they end the oldest), or until
  // RecomputeAll.  REQUIRES fewer than kMostUnderWay steps under way; with `feeds`, one at most.
  const ScheduledStep* Schedule(const StepRules& rules = {});
  // The rows of the oldest step under way are in the KV cache.
  void StepDone();
  // A worker refused the oldest step under way; the caller then removes its sequences.
  void StepRefused();
  // The oldest step under way failed: its sequences are preempted, but for removed ones.
  // REQUIRES that no later step was fed by it.
  void StepFailed();
  // Whether a step's row of a sequence is valid, and so its output: false if it began from a
  // rejected guess or follows such a row, or if the sequence has been removed.
  bool IsValid(uint64_t step_id, uint64_t id, uint32_t position) const;
  // Whether a valid output of the row at `position` decides a token: not if the token after it is
  // forced.
  bool Decides(uint64_t step_id, uint64_t id, uint32_t position) const;
  // Adds the token decided for a sequence; `needs` are those of the next token.  `guess`: the
  // speculative token that the device fed to the step under way, if one is.
  // REQUIRES the step done last had a sampled output of the sequence, which Decides and is not yet
  // appended, all valid ones before it appended, and fewer tokens than max_sequence_len() and
  // max_answer allow.
  void Append(uint64_t id, uint32_t token, OutputNeeds needs, uint32_t guess = kNoToken);

  // The token of a constrained sequence, decided by the step done last, will be appended late: the row
  // that the step under way has of it, if any, is void.
  void TakeBack(uint64_t id);

  // Whether a sequence without a constraint runs: steps are queued then, whatever the others do.
  bool RunsUnconstrained() const;

  // Adds tokens that follow without a step, after Append.  REQUIRES a constrained sequence, and fewer
  // tokens than max_sequence_len() and max_answer allow.
  void AppendForced(uint64_t id, std::span<const uint32_t> tokens);

  // Where guesses could go in the next step.
  void FindDraftPlaces(DraftPlaces& found, const LateMask& late_mask = nullptr) const;
  // Guesses for the tokens after the known ones of a sequence, which the next step verifies as far
  // as it has room: then they are dropped.  `needs`: of every output of the sequence in that step.
  // Between guesses for a constrained sequence nothing may be forced.
  // REQUIRES a sequence of the places that is not under way, and as many guesses as its place has
  // room for.
  void Draft(uint64_t id, std::span<const uint32_t> guesses, OutputNeeds needs);
  // Whether the next rows of a sequence wait for its token under way, so that guesses can follow it.
  void AwaitDraft(uint64_t id, bool awaits);

  // Blocks computed so far are no longer shared; current holders keep theirs.
  void ForgetPrefixes() { pools_.ForgetAll(); }

  // The KV cache is lost: all running sequences wait again, in order of arrival, with their
  // tokens.  `limits` are those of the recovered workers.  Returns (and forgets) the ids of
  // sequences that can no longer fit.  INVALID_ARGUMENT as Create.
  absl::StatusOr<std::vector<uint64_t>> RecomputeAll(const StepLimits& limits);

  // Most tokens of a sequence, prompt included: bounded by the context and by the KV pools.
  uint32_t max_sequence_len() const { return max_sequence_len_; }
  // Most rows of a picture: it must fit into a step beside the decode rows of all other sequences.
  uint32_t max_picture_rows() const { return MaxPictureRows(options_); }
  static uint32_t MaxPictureRows(const SchedulerOptions& options);
  bool empty() const { return sequences_.empty(); }
  SchedulerLoad load() const;
  const SchedulerCounters& counters() const { return counters_; }
  const KvPools& pools() const { return pools_; }

 private:
  explicit Scheduler(const SchedulerOptions& options);

  // INVALID_ARGUMENT: a sequence of so many tokens cannot be computed here.
  absl::Status CheckFits(const SequenceSpec& spec, size_t num_tokens) const;
  // `arrival`: Sequence's.
  Sequence& Enter(SequenceSpec spec, uint64_t arrival);
  bool PicturesFit(const std::vector<PictureSpan>& pictures) const;
  // As the options and the workers' limits allow.
  uint32_t MaxRunning() const;
  // Where the tokens of drafted rows end is not known before they are decided.
  bool HasDrafts(const ScheduledStep& under_way) const;
  // Uses the speculative tokens of the step under way; false if a sequence must wait for its token.
  bool TakeGuesses(const ScheduledStep& under_way, const StepRules& rules);
  // Whether a constrained sequence may take one, now or if it does not wait.
  static bool TakesLateMask(const Sequence& sequence, const LateMask& late_mask) {
    return !sequence.needs_token() && MayBeFed(sequence, late_mask);
  }
  static bool MayBeFed(const Sequence& sequence, const LateMask& late_mask) {
    return late_mask && sequence.guess.has_value() && late_mask(sequence.id);
  }
  // Whether the planned rows end with an output that decides a token of a constrained sequence.
  static bool DecidesConstrained(const PlannedRows& planned) {
    return planned.sequence->constrained && planned.num_rows == planned.sequence->num_remaining();
  }
  bool GoesOn(const Sequence& sequence) const;
  Sequence* Find(uint64_t id) const;
  // Whether TakeGuesses and PlanStep will find rows while the step just issued is under way.  A
  // token that ends its answer, or a new request, may prove it wrong.
  bool AnotherFollows(const StepRules& rules) const;
  // The rows of the step under way from `position` on are void.
  static void Reject(Sequence& sequence, uint32_t position);
  // Counts the planned rows as computed.
  void Issue(uint64_t step_id, bool feeds);
  void PlanStep(const StepRules& rules);
  void PlanDecodes(const StepRules& rules);
  // Whether constrained sequences wait for those of the step under way.
  bool HoldsConstrained(const StepRules& rules) const;
  void PlanDrafts();
  // How many guesses of the draft of `sequence` fit behind its rows up to `end`.
  uint32_t FitDraft(const Sequence& sequence, uint32_t end) const;
  // Guesses that the limits of a sequence leave room for: the last of them decides a token too.
  uint32_t DraftRoom(const Sequence& sequence) const;
  // Puts a sequence in its place among those of its tenant that wait.
  static void Wait(Sequence& sequence);
  // Of the sequences of one priority.
  void PlanPromptsOf(const Tenant& tenant, int32_t priority);
  void PlanIfRunning(Sequence& sequence);
  // Prompt rows of a tenant in the plan.
  uint32_t NumPromptRows(const Tenant& tenant) const;
  // Rows that add hardly any time to a step.
  bool IsOverdue(const Sequence& sequence, uint32_t rows_left) const;
  uint32_t FreeRows() const { return std::max(1u, options_.chunk_rows / 16); }
  // Admits waiting sequences of one priority; false if one does not fit.
  bool AdmitWaiting(Tenant& tenant, int32_t priority);
  // Drops imports until `sequence`, which has a place, fits: of sequences that are not here yet, or
  // wait behind it.  False if their blocks are too few; then, as far as an estimate can say, none was
  // dropped for nothing.
  bool DropImportsFor(const Sequence& sequence);
  // Preempts sequences of other tenants until `sequence` has a place and fits.  False if those that
  // it may preempt are too few; then, as far as an estimate can say, none was preempted for
  // nothing.
  bool MakeWay(const Sequence& sequence);
  // Plans as many rows of a running sequence as the budgets and blocks allow; may be 0.
  void PlanRows(Sequence& sequence);
  // Rows of `sequence` within the step's budgets of rows, outputs, pictures and table entries.
  uint32_t FitBudgets(const Sequence& sequence) const;
  // Preempts until the blocks cover the next row of `sequence`, to the end of its picture;
  // false without a victim (RunningSet::VictimForRow).
  bool MakeRoom(const Sequence& sequence);
  // Of a sequence: frees the window blocks that its next rows cannot see, but for those it keeps.
  static void ReleaseUnseen(Sequence& sequence);
  // Of all: frees those that are kept.
  void ReleaseKeptWindows();
  void Preempt(Sequence& victim);
  void AddUsage(const PlannedRows& planned, int sign);

  SchedulerOptions options_;
  KvPools pools_;  // outlives sequences_ and imports_
  KvImports imports_;
  PrefixScopes scopes_;
  uint32_t max_sequence_len_;
  std::unordered_map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  Tenants tenants_;                            // with the waiting sequences
  std::map<int32_t, size_t> num_by_priority_;  // sequences; none with 0
  uint64_t num_arrivals_ = 0;
  uint64_t last_step_id_ = 0;  // never used twice, failed steps included
  SchedulerCounters counters_;
  RunningSet running_;
  std::deque<const ScheduledStep*> under_way_;  // oldest first

  // The step being planned, and how much of its budgets is used.
  std::vector<PlannedRows> plan_;
  bool plans_decodes_ = false;
  std::vector<Sequence*> order_;
  bool stuck_ = false;  // no sequence could go on: ignore fair shares
  uint32_t rows_used_ = 0;
  uint32_t max_rows_ = 0;  // of this step
  // The last step that had more for a picture's sake; it comes again after kStepsOfPicture steps.
  uint64_t picture_step_id_ = 0;
  static constexpr uint64_t kStepsOfPicture = 4;
  uint32_t outputs_used_ = 0;
  uint32_t logit_samples_ = 0;  // sampled outputs that need every logit
  uint32_t masks_used_ = 0;     // sampled outputs of constrained sequences
  uint32_t pictures_used_ = 0;  // whole ones, and last rows of others
  uint64_t table_used_ = 0;
  StepBuilder builders_[kMostUnderWay];  // by step id, in turn
};

}  // namespace tandem::gateway
