// A second, smaller model that guesses: a Drafter with an executor, a plan and a KV cache of its own.
//
//   engine thread           draft thread                      workers
//   Begin, Decided, Ask --> sequences (DraftBatch) --step-->  plan "draft"
//   Take  <---- chains ---- guesses drawn     <--results---
//
// The engine thread never waits for a device here, only for the lock of the sequences, which is held
// while a step is written or its results are read.  When a worker is lost, chains end without guesses
// until the plan is loaded again; nobody waits for that.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/model/vocabulary.h"
#include "services/gateway/draft/draft_batch.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/speculation/drafter.h"

namespace tandem::gateway {

// Totals since the start.
struct DraftCounters {
  uint64_t steps = 0;
  uint64_t rows = 0;
  uint64_t chains = 0;  // with guesses
  uint64_t guesses = 0;
  uint64_t losses = 0;      // of a worker
  double busy_seconds = 0;  // in steps
};

class DraftModel final : public Drafter {
 public:
  using StartExecutor =
      std::function<absl::StatusOr<std::unique_ptr<Executor>>(const Executor::Progress&)>;
  struct Options {
    StartExecutor start;
    std::string name;  // of the model, for messages
    // How often workers are asked whether they are there while nothing is drafted.
    absl::Duration idle_check = absl::Seconds(1);
    // Between two attempts to get a lost worker back.
    absl::Duration min_pause = absl::Seconds(1);
    absl::Duration max_pause = absl::Seconds(30);
  };

  // Loads the draft for a model.  Without its workers (UNAVAILABLE) it goes on: they may come.
  // FAILED_PRECONDITION: another vocabulary.  Otherwise as Executor::Start.
  static absl::StatusOr<std::unique_ptr<DraftModel>> Create(Options options,
                                                            const Vocabulary& model,
                                                            const Executor::Progress& progress);
  // As Stop.
  ~DraftModel() override;

  std::string_view name() const override { return "draft"; }
  std::string_view trouble() const override;
  // "NAME on PLACEMENT"; the name alone before it was loaded.
  std::string about() const override;
  double busy_seconds() const override;
  // Waits for the step under way, or for an attempt to get workers back; then lets go of them.
  void Stop() override;
  void Observe(const ObserveDraftStep& observe) override;
  void Begin(const DraftSequence& sequence) override;
  void Decided(uint64_t sequence, std::span<const uint32_t> tokens, uint32_t num_accepted) override;
  void End(uint64_t sequence) override;
  absl::Duration TimeFor(uint32_t num_sequences, uint32_t max_guesses) const override;
  void Ask(std::span<const DraftRequest> requests) override;
  void Take(absl::Time until, std::vector<DraftChain>& chains) override;

  // --- From any thread.

  DraftCounters counters() const;
  // Empty: never loaded.
  std::string placement() const;

 private:
  DraftModel(Options options, const Vocabulary& model);

  absl::Status Load(const Executor::Progress& progress);
  void Run();
  // Runs one step if there is one to run; returns whether there was.
  bool RunStep();
  // Waits for news, at most `patience`; false: it is to stop.
  bool Wait(absl::Duration patience);
  // Hands chains that have ended to the engine thread.
  void PublishChains() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Lose(const absl::Status& why);
  // One attempt to load again.
  void Recover();

  const Options options_;
  const Vocabulary& model_;             // Borrowed.
  std::unique_ptr<Executor> executor_;  // the draft thread's
  uint64_t step_id_ = 0;

  mutable Mutex mutex_;
  CondVar changed_;  // for the draft thread
  CondVar drafted_;  // for the engine thread
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool news_ ABSL_GUARDED_BY(mutex_) = false;  // for the draft thread, since it looked last
  DraftBatch batch_ ABSL_GUARDED_BY(mutex_);
  std::vector<DraftChain> ready_ ABSL_GUARDED_BY(mutex_);
  std::string trouble_ ABSL_GUARDED_BY(mutex_);
  std::string placement_ ABSL_GUARDED_BY(mutex_);
  DraftCounters counters_ ABSL_GUARDED_BY(mutex_);
  ObserveDraftStep observe_ ABSL_GUARDED_BY(mutex_);
  absl::Duration pause_;               // the draft thread's
  mutable std::string shown_trouble_;  // the engine thread's
  std::atomic<int64_t> step_ns_;       // of a step with guesses, moving average

  std::thread thread_;  // last: runs on everything above
};

}  // namespace tandem::gateway
