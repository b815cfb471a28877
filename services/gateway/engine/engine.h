// The gateway's engine: one thread that turns requests into steps and steps into text.
//
//   Submit -> Admission -> scheduler -> WriteStep -> Executor -> Sampler -> StreamDecoder
//             (bounded)        ^                                     |             |
//                              +--------------- token ---------------+             v
//                                                                   TokenStream -> reader
//
// Where the executor's depth is two, the next step is scheduled and submitted while one runs, its
// rows fed with speculative tokens (scheduler.h).  When a step's results come, the sampler decides,
// and a rejected token costs its sequence one row.  The executor says when the next step is due,
// shortly before the running one ends: a request that comes while a step runs is in the next one.
//
//   submit 1 ... due: submit 2 | wait for 1, decide ... due: submit 3 | wait for 2, decide ... | ...
//
// With drafters (EngineOptions::make_drafters) a step also has rows for their guesses.  The sampler
// decides at each row as it would have without, so tokens are the same; an accepted guess saves a
// step (docs/decisions/0022).
//
// A step that fails with UNAVAILABLE means that a worker and its KV cache are gone: the scheduler
// puts every sequence back into the queue with its tokens, the executor recovers, and the tokens
// are computed again (recovery.h).  Draws are counter-based, so the streams go on as if nothing had
// happened.  When an attempt to recover fails, or the scheduler refuses the limits of the workers
// that it finds, requests submitted before the attempt end with UNAVAILABLE.  The engine tries
// again, with growing pauses; requests that come meanwhile wait for at most `down_wait`.  Where
// other engines serve the same model, its requests go on there at once (neighbours.h).  One that only
// computes prompts hands its requests to them with their KV (kv_hand_over.h).  When the
// model itself is lost, because its file has changed and the loader no longer has what was loaded,
// tokens of two models would be mixed: every request ends, and so does the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/gateway/engine/admission.h"
#include "services/gateway/engine/constraint_work.h"
#include "services/gateway/engine/engine_observer.h"
#include "services/gateway/engine/kv_receiver.h"
#include "services/gateway/engine/kv_sender.h"
#include "services/gateway/engine/late_masks.h"
#include "services/gateway/engine/neighbours.h"
#include "services/gateway/engine/recovery.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/engine/request_sink.h"
#include "services/gateway/engine/stream_notifier.h"
#include "services/gateway/engine/token_stream.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/scheduler/scheduler.h"
#include "services/gateway/speculation/speculator.h"
#include "services/gateway/tokenizer/tokenizer.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Makes what guesses tokens ahead, for a model and its executor; says how far it is with loading.
// An error is Engine::Create's.
using MakeDrafters = std::function<absl::StatusOr<std::vector<std::unique_ptr<Drafter>>>(
    const Executor& executor, const Executor::Progress& progress)>;

struct EngineOptions {
  uint32_t max_sequences = 16;  // running together
  uint32_t max_rows = 512;      // of one step
  uint32_t chunk_rows = 512;    // of one prompt in one step
  uint32_t max_waiting = 128;   // requests beyond those running
  // Of all prompts that wait or run together; 0: any number.
  uint64_t max_queued_tokens = 2'000'000;
  // Time between two tokens of an answer that prompts may stretch a step to; zero: any.
  absl::Duration token_target;
  bool prefix_cache = true;      // scheduler.h
  bool shared_prefixes = false;  // between clients of all API keys
  // What the engine's thread does for a constrained answer between two tokens, in nodes visited.
  // Other threads do what takes more, and then, for a time, all that the constraint needs.  0: they do everything.
  uint64_t quick_constraint_work = 25'000;
  // A request whose steps failed so often in a row may be what kills the worker: it ends.
  uint32_t max_attempts = 3;
  absl::Duration down_wait = absl::Seconds(20);
  // How often workers are asked whether they are there while nothing runs.
  absl::Duration idle_check = absl::Seconds(1);
  absl::Duration min_recovery_pause = absl::Milliseconds(500);
  absl::Duration max_recovery_pause = absl::Seconds(10);
  MakeDrafters make_drafters;            // null: nothing guesses
  Executor::Progress drafters_progress;  // make_drafters', within Engine::Create; may be empty
  // For tests: what a step that decodes so many rows takes, in seconds, for the choice of guesses;
  // null: as measured.
  std::function<double(uint32_t num_rows)> step_seconds;
  // Borrowed; must outlive the engine.
  std::vector<EngineObserver*> observers;
  // Where requests go on while workers are lost, and the engine's number among them; all draw the
  // numbers of requests from `ids`.  Null: the engine is the only one.  Borrowed; must outlive the engine.
  Neighbours* neighbours = nullptr;
  uint32_t replica = 0;
  // Requests whose prompts are computed go on at a neighbour, with their KV.
  bool hands_over = false;
  std::shared_ptr<RequestIds> ids;
  // Calls readers; null: the engine makes its own.
  std::shared_ptr<StreamNotifier> notifier;
  // Called when the engine becomes ready or starts recovering, on its thread.
  std::function<void(bool ready)> on_ready_change;
  // Called when the engine has ended by ModelChangedError, as the last action of its thread: its
  // requests have ended with UNAVAILABLE, and it accepts no others.
  std::function<void()> on_model_changed;
};

// Thread-safe.
class Engine final : public RequestSink {
 public:
  // `tokenizer`: Borrowed; must outlive this.  INVALID_ARGUMENT: limits or options that cannot
  // work.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::unique_ptr<Executor> executor,
                                                        const Tokenizer& tokenizer,
                                                        EngineOptions options);
  // Ends every request with UNAVAILABLE.
  ~Engine() override;

  using RequestSink::Submit;
  absl::Status Submit(EngineRequest&& request, std::shared_ptr<TokenStream> stream) override;
  // Goes on with a request of another engine.  False, and `moved` is as it was: the engine ends, or
  // the request does not fit.
  bool Adopt(std::unique_ptr<MovedRequest>& moved) { return admission_.Adopt(moved); }
  // Admission::PredictEnd.
  std::optional<double> PredictEnd(const EngineRequest& request, uint32_t cached) const {
    return admission_.PredictEnd(request, cached);
  }
  // Requests that it has.
  uint32_t num_requests() const { return admission_.num_requests(); }
  // Requests that went on in another engine; of them, those whose KV went with them.
  uint64_t moved_away() const { return moved_away_.load(std::memory_order_relaxed); }
  uint64_t handed_over() const { return handed_over_.load(std::memory_order_relaxed); }
  // A request will come from another engine, after its KV.  False: the KV is not taken here.
  bool Expect(std::shared_ptr<KvHandOver> hand_over) {
    return copies_kv_.load(std::memory_order_relaxed) && receiver_.Expect(std::move(hand_over));
  }
  // Hand-overs whose requests will come.
  uint32_t num_expected() const { return receiver_.num_pending(); }
  // From now on every request goes on at a neighbour, with its KV, when one takes it.
  void HandAllOver() { hands_over_.store(true, std::memory_order_relaxed); }
  uint64_t kv_sent_bytes() const { return sender_.bytes(); }
  uint64_t kv_received_bytes() const { return receiver_.bytes(); }

  // The most rows that a picture may have under these options; 0: no pictures.
  static uint32_t MaxPictureRows(const EngineOptions& options, const StepLimits& limits) {
    return Scheduler::MaxPictureRows(MakeSchedulerOptions(options, limits));
  }

  // Tells the observers of a request that was refused before it was submitted.
  void ReportRefused(Api api, const absl::Status& status) const;

  // Refuses requests of other engines from now on.
  void Close() { admission_.Close(); }
  // Refuses new requests and waits up to `patience` for those there are to end.
  void Drain(absl::Duration patience) { admission_.Drain(patience); }

  // Ends every request with UNAVAILABLE within a step, and the engine with them.
  void Stop();
  // At its end the workers drop its plan.
  void UnloadAtEnd() { unloads_ = true; }

  // Counts what the thread does: it goes on counting while there is nothing to do, and while
  // workers are waited for.  Stands still within a step.
  uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }
  // Whether a worker is lost; the destructor may then wait for the executor to give up on it.
  bool recovering() const { return !recovery_.reason().empty(); }
  // Whether anything guesses tokens ahead.
  bool drafts() const { return speculator_ != nullptr; }
  // Tokens of prompt and answer together.
  uint32_t max_sequence_len() const { return admission_.max_sequence_len(); }
  // Of a picture, by the plan in force; 0: it takes none.
  uint32_t max_picture_rows() const { return max_picture_rows_.load(std::memory_order_relaxed); }
  // As Admission's.
  absl::Status CheckPlace(const EngineRequest& request) const {
    return admission_.CheckPlace(request);
  }
  std::string placement() const;
  // Fills everything but version, model and uptime.
  void FillStatus(v1::GetStatusResponse& status) const;
  SchedulerCounters counters() const;

 private:
  using Runs = std::unordered_map<uint64_t, std::unique_ptr<RequestRun>>;
  // Guesses of a drafter since start.
  struct DrafterCounts {
    uint64_t drafted = 0;
    uint64_t accepted = 0;
    std::string trouble;  // why it does not guess
  };
  // What other threads may know of the engine's own state.
  struct Snapshot {
    SchedulerLoad load;
    SchedulerCounters counters;  // the scheduler's and the engine's
    std::vector<DrafterCounts> drafters;
    std::string placement;
    std::string notice;
  };

  Engine(std::unique_ptr<Executor> executor, const Tokenizer& tokenizer, EngineOptions options,
         std::unique_ptr<Scheduler> scheduler, std::vector<std::unique_ptr<Drafter>> drafters);
  static SchedulerOptions MakeSchedulerOptions(const EngineOptions& options,
                                               const StepLimits& limits);

  // The thread.
  void Run();
  void RunOnce();
  void TakeRequests();
  void Accept(SubmittedRequest submitted);
  // Requests of other engines, and those that go to them while workers are lost (engine_moves.cc).
  void Continue(std::unique_ptr<MovedRequest> moved);
  void OfferRuns();
  bool MoveAway(uint64_t id);
  // KV that goes to other engines, and comes from them (engine_hand_over.cc).
  void HandOver(absl::Time now);
  // Tells the neighbours what a request that ends leaves in the prefix cache.
  void TellKept(uint64_t id, const EngineRequest& request);
  void OfferKv(absl::Time now);
  bool CopiesDue() { return receiver_.copy_due() || sender_.copy_due(); }
  // Copies for a while.  REQUIRES CopiesDue, and no step under way.
  void RunCopies();
  // Sequences that could run beside those there are.
  uint32_t FreePlaces() const;
  void AbandonHandOvers();
  // Ends requests that were cancelled or have waited too long.
  void Sweep(absl::Time now);
  void Publish();
  void PublishPlan();

  // A step that the executor has.
  struct Flight {
    const ScheduledStep* step = nullptr;  // the scheduler's
    uint32_t lane = 0;
    bool queued = false;
    bool masks_follow = false;
    absl::Time begin;
    std::vector<RequestRows> rows;  // empty unless somebody observes
  };

  // Prompt rows beside `decode_rows` that keep the time between tokens.
  uint32_t PromptRowsBeside(uint32_t decode_rows) const;
  // Submits a step, or waits for the oldest under way, or both.
  void RunOneStep();
  void SubmitStep(const ScheduledStep& step);
  void WaitForStep();
  // Takes what the oldest step under way has led to.
  void EndOldest();
  // Tells the admission what a step took, and from time to time how far the requests are.
  void NoteLoad(const Flight& flight, absl::Time now);
  std::vector<RequestRows> RowsOf(const ScheduledStep& step) const;
  // Tells the observers of a step that has ended.
  void ReportStep(const Flight& flight, std::span<const SegmentTiming> timings,
                  const absl::Status& status);
  // Likewise of a drafter's, from its thread.
  void ReportDraft(const DraftStep& step) const;
  void ReportEnd(uint64_t id, const RequestRun& run, const absl::Status& status,
                 v1::FinishReason reason, absl::Time now) const;
  void ChargeDevices(const ScheduledStep& step, const std::vector<SegmentTiming>& timings);
  void TakeOutput(const Flight& flight, uint32_t o);
  void TakePooled(const Flight& flight, uint32_t p);
  void TakeSampledOutput(uint64_t id, RequestRun& run, const Flight& flight, uint32_t o);
  // Appends what was decided, and hands it to the reader.  `guess`: Scheduler::Append's.
  // `guessed`: its row began from a drafter's guess.
  void TakeOutcome(uint64_t id, RequestRun& run, RequestRun::Outcome outcome, uint32_t guess,
                   bool guessed = false);

  // Drafters (engine_speculation.cc); without any, nothing happens in these.
  // LogitRounding of the executor's model.
  static double RoundingOf(const Executor& executor);
  // `answer`: the tokens that it has.
  void BeginDrafting(uint64_t id, const RequestRun& run, std::span<const uint32_t> answer);
  // Gives the scheduler the guesses that the next step is to verify.
  void ChooseGuesses();
  // A step is about to be submitted, or has ended: learns what steps cost.
  void NoteSubmitted(absl::Time now);
  void NoteStep(const Flight& flight);
  void NoteAccepted(RequestRun& run);
  void NoteDecided(uint64_t id, std::span<const uint32_t> tokens, bool guessed);
  void PublishDrafters();
  void FillDrafters(const Snapshot& snapshot, v1::SchedulerStatus& status) const;

  // Constrained answers (engine_constraint.cc).
  // `guess`: the device's, Scheduler::Append's.
  void TakeConstrainedOutput(uint64_t id, RequestRun& run, const OutputResult& result,
                             std::span<const float> logits, uint32_t guess, bool guessed);
  // Of the answers whose masks may be late in the next step; null: none may.
  LateMask MayBeLate() const;
  // How many of the guesses the next step can verify, with their masks made.
  size_t MaskGuesses(RequestRun& run, std::span<const uint32_t> guesses) const;
  bool IsQuick(const RequestRun& run) const;
  std::unique_ptr<ConstraintWork> MakeWork(uint64_t id, const RequestRun& run) const;
  void PostWork(uint64_t id, RequestRun& run);
  // Writes the masks that are known; true: others follow.
  bool WriteMasks(const ScheduledStep& step, uint32_t lane);
  // The step before has ended: writes the masks that follow, of the tokens that it has decided.
  void WriteLateMasks(Flight& flight);
  void WriteMask(uint32_t lane, uint32_t index, std::span<const uint32_t> mask);
  // Takes the work that the pool has ended.  While nothing is under way it waits for it: for all of
  // it a short time, and with `idle` for some of it.
  void TakeConstraintWork(bool idle);
  void FinishWork(ConstraintWork& work, uint32_t guess = kNoToken, bool guessed = false);
  // What becomes of the steps under way when the oldest has failed.
  void FailStep(const absl::Status& status);
  void LoseSteps(const absl::Status& status);
  RequestRun* FindRun(uint64_t id);

  // One attempt to get lost workers back.
  void Recover();
  // Continues with the workers that Recover found.  An error: the scheduler refuses their limits.
  absl::Status Resume();
  // Takes and ends requests while workers are lost; false after Stop.
  bool TurnWhileDown();

  // Ends a request; with OK, for `reason`.
  void End(uint64_t id, absl::Status status,
           v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED);
  void EndAll(const absl::Status& status, absl::Time submitted_before);

  const std::unique_ptr<Executor> executor_;
  const Tokenizer& tokenizer_;
  const EngineOptions options_;
  const double rounding_;  // RoundingOf the executor

  // The engine thread's own.
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Speculator> speculator_;  // null: there are no drafters
  DraftPlaces draft_places_;
  absl::Time last_wait_end_ = absl::InfinitePast();  // of the step before, if work followed at once
  Runs runs_;
  StopRules rules_;
  Snapshot snapshot_;
  SchedulerCounters counters_;  // what the engine itself counts
  std::deque<Flight> flights_;  // oldest first; at most the executor's depth
  uint32_t num_submitted_ = 0;
  // The step before the oldest under way was refused: so may be one that was to be fed from it.
  bool refused_before_ = false;
  absl::Time last_step_end_ = absl::InfinitePast();
  absl::Time progress_at_ = absl::InfinitePast();
  std::vector<RequestProgress> progress_;  // reused
  uint64_t decoded_ = 0;                   // decode rows since the last report, without guesses
  uint64_t accepted_ = 0;                  // guesses of drafters accepted before it

  std::atomic<uint64_t> turns_{0};
  std::atomic<uint64_t> moved_away_{0};
  std::atomic<uint64_t> handed_over_{0};

  Admission admission_;
  Recovery recovery_;
  KvSender sender_;
  KvReceiver receiver_;
  absl::Duration last_step_took_;
  std::atomic<bool> copies_kv_{false};
  std::atomic<uint32_t> max_picture_rows_{0};
  std::atomic<bool> hands_over_;
  mutable Mutex mutex_;
  Snapshot published_ ABSL_GUARDED_BY(mutex_);

  LateMasks late_masks_;
  const ForcedEncoder constraint_encoder_;
  ConstraintPool constraint_pool_;
  const std::shared_ptr<StreamNotifier> notifier_;
  bool unloads_ = false;
  std::thread thread_;  // last: runs on everything above
};

}  // namespace tandem::gateway
