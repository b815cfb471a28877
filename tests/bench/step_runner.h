// Runs steps on one worker with a whole model, in place of a gateway.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/step_builder.h"
#include "tests/bench/step_case.h"

namespace tandem::bench {

// Times of a step, seconds.
struct StepTimes {
  // From the end of the step before where steps are queued; else from rows to results in the
  // exchange region.
  double wall = 0;
  double device = 0;  // as the device counts it
  // Of the host, until the step was submitted: writing, checking and handing it over.
  double hand_over = 0;
  std::array<double, kNumStageKinds> stages = {};
};

// Over all steps of all repetitions.
struct CaseResult {
  StepCase step_case;
  bool queued = false;
  StepTimes median;
  double tokens_per_second = 0;  // over all steps' wall time
  double busy = 0;               // share of it that the device counts
  double slowest_wall = 0;
  StepWork work;
  std::vector<uint32_t> tokens;  // that decoding made, [step, sequence]: of their last rows
};

struct RunnerOptions {
  uint32_t tokens = 64;      // a sequence makes in one measurement
  uint32_t repetitions = 3;  // of prompts
  uint32_t candidates = 1;   // that the head reports
  bool fill = true;          // compute the positions before a case's depth; else they hold nothing
  // Decode with a step queued behind the one that runs, its rows fed with the device's guesses;
  // else one step after another, its rows the tokens that the host has read.  Prompts are never
  // queued. Wants a runner of two lanes and a worker that feeds steps.
  bool queue_steps = false;
  // Called when a step has ended; may be null.
  std::function<absl::Status()> after_step;
};

// Decoding is greedy, from a random token of each sequence on.  Single-thread.
class StepRunner {
 public:
  // `runner`: borrowed; must outlive this.
  StepRunner(testing::PlanRunner& runner, const WeightSet& weights, const RunnerOptions& options)
      : runner_(runner), weights_(weights), options_(options) {}

  absl::StatusOr<CaseResult> Measure(const StepCase& step_case);

 private:
  using Clock = std::chrono::steady_clock;

  // Runs the step and returns what it took.
  absl::StatusOr<StepTimes> RunStep();
  // Queues the step and notes what that took.
  absl::Status Queue(const StepBatch& step, uint32_t lane);
  // Waits for the step queued first, of `num_outputs` outputs.  `since`: when its time began; is
  // set to when it ended.
  absl::StatusOr<StepTimes> Finish(uint32_t lane, uint32_t num_outputs, Clock::time_point& since);
  // Brings new sequences to the case's depth.
  absl::StatusOr<std::vector<uint32_t>> Fill(const StepCase& step_case);
  // Begins the sequences' next decoding step.  `tokens`: by sequence; none: their first rows are fed.
  void BeginDecode(const StepCase& step_case, const std::vector<uint32_t>& sequences,
                   const std::vector<uint32_t>& tokens);
  absl::Status Decode(const StepCase& step_case, std::vector<StepTimes>& times,
                      std::vector<uint32_t>& tokens);
  absl::Status Prompt(const StepCase& step_case, std::vector<StepTimes>& times);
  std::vector<uint32_t> Tokens(uint32_t count);

  testing::PlanRunner& runner_;  // Borrowed.
  const WeightSet& weights_;     // Borrowed.
  const RunnerOptions options_;
  std::unique_ptr<testing::StepBuilder> steps_;
  double hand_over_[2] = {};  // by lane, of the step queued last
  uint32_t next_token_ = 1;
};

}  // namespace tandem::bench
