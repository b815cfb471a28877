// One worker with a whole model, and steps through it: what a gateway does, without the gateway.
#pragma once

#include <array>
#include <cstdint>
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
  double wall = 0;    // from rows to results in the exchange region
  double device = 0;  // as the device counts it
  std::array<double, kNumStageKinds> stages = {};
};

// Medians over all steps of all repetitions, but for the rate.
struct CaseResult {
  StepCase step_case;
  StepTimes median;
  double tokens_per_second = 0;  // over all steps' wall time
  double slowest_wall = 0;
  StepWork work;
};

struct RunnerOptions {
  uint32_t tokens = 64;      // a sequence makes in one measurement
  uint32_t repetitions = 3;  // of prompts
  uint32_t candidates = 1;   // that the head reports
  bool fill = true;          // compute the positions before a case's depth; else they hold nothing
};

// Single-thread.
class StepRunner {
 public:
  // `runner`: borrowed; must outlive this.
  StepRunner(testing::PlanRunner& runner, const WeightSet& weights, const RunnerOptions& options)
      : runner_(runner), weights_(weights), options_(options) {}

  absl::StatusOr<CaseResult> Measure(const StepCase& step_case);

 private:
  // Runs the step and returns what it took.
  absl::StatusOr<StepTimes> RunStep();
  // Brings new sequences to the case's depth.
  absl::StatusOr<std::vector<uint32_t>> Fill(const StepCase& step_case);
  absl::Status Decode(const StepCase& step_case, std::vector<StepTimes>& times);
  absl::Status Prompt(const StepCase& step_case, std::vector<StepTimes>& times);
  std::vector<uint32_t> Tokens(uint32_t count);

  testing::PlanRunner& runner_;  // Borrowed.
  const WeightSet& weights_;     // Borrowed.
  const RunnerOptions options_;
  std::unique_ptr<testing::StepBuilder> steps_;
  uint32_t next_token_ = 1;
};

}  // namespace tandem::bench
