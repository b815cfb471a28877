#include "tests/bench/step_runner.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kWarmUpSteps = 3;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The median of a part of every step's times.
template <typename Part>
double MedianOf(const std::vector<StepTimes>& times, Part part) {
  std::vector<double> values;
  for (const StepTimes& step : times) values.push_back(part(step));
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<uint32_t> StepRunner::Tokens(uint32_t count) {
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) {
    token = next_token_ % runner_.config().vocab_size;
    next_token_ = next_token_ * 1664525u + 1013904223u;
  }
  return tokens;
}

absl::StatusOr<StepTimes> StepRunner::RunStep() {
  const StepBatch step = steps_->batch();
  const Clock::time_point start = Clock::now();
  TANDEM_RETURN_IF_ERROR(runner_.WriteAndCheckStep(step));
  TANDEM_ASSIGN_OR_RETURN(const SegmentResult result, runner_.RunSegment(0));
  StepTimes times;
  times.wall = SecondsSince(start);
  times.device = static_cast<double>(result.device_ns) * 1e-9;
  for (const StageTime& stage : result.stage_times) {
    times.stages[static_cast<size_t>(stage.kind)] = static_cast<double>(stage.device_ns) * 1e-9;
  }
  for (uint32_t o = 0; o < step.header.num_outputs; ++o) {
    if (options_.fill && runner_.Output(o).num_nonfinite != 0) {
      return absl::InternalError(
          absl::StrFormat("step %d: output %d has %d logits that are no numbers",
                          step.header.step_id, o, runner_.Output(o).num_nonfinite));
    }
  }
  return times;
}

absl::StatusOr<std::vector<uint32_t>> StepRunner::Fill(const StepCase& step_case) {
  steps_ = std::make_unique<testing::StepBuilder>(runner_.limits());
  std::vector<uint32_t> sequences;
  for (uint32_t s = 0; s < step_case.sequences; ++s) {
    const uint32_t sequence = steps_->AddSequence();
    sequences.push_back(sequence);
    while (steps_->Length(sequence) < step_case.depth) {
      steps_->Begin();
      steps_->AddRows(sequence, Tokens(std::min(runner_.limits().max_rows,
                                                step_case.depth - steps_->Length(sequence))));
      if (options_.fill) TANDEM_RETURN_IF_ERROR(RunStep().status());
    }
  }
  return sequences;
}

absl::Status StepRunner::Decode(const StepCase& step_case, std::vector<StepTimes>& times) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> sequences, Fill(step_case));
  for (uint32_t i = 0; i < options_.tokens; ++i) {
    steps_->Begin();
    steps_->set_num_candidates(options_.candidates);
    for (const uint32_t sequence : sequences) {
      steps_->AddOutput(steps_->AddRows(sequence, Tokens(1)));
    }
    TANDEM_ASSIGN_OR_RETURN(const StepTimes step, RunStep());
    if (i >= std::min(kWarmUpSteps, options_.tokens - 1)) times.push_back(step);
  }
  return absl::OkStatus();
}

absl::Status StepRunner::Prompt(const StepCase& step_case, std::vector<StepTimes>& times) {
  // The first is for warming up.
  for (uint32_t repetition = 0; repetition <= options_.repetitions; ++repetition) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> sequences, Fill(step_case));
    uint32_t left = step_case.prompt_tokens;
    while (left > 0) {
      const uint32_t rows = std::min(left, runner_.limits().max_rows);
      left -= rows;
      steps_->Begin();
      steps_->set_num_candidates(options_.candidates);
      const uint32_t first = steps_->AddRows(sequences[0], Tokens(rows));
      if (left == 0) steps_->AddOutput(first + rows - 1);
      TANDEM_ASSIGN_OR_RETURN(const StepTimes step, RunStep());
      if (repetition > 0) times.push_back(step);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CaseResult> StepRunner::Measure(const StepCase& step_case) {
  std::vector<StepTimes> times;
  TANDEM_RETURN_IF_ERROR(step_case.is_prompt ? Prompt(step_case, times) : Decode(step_case, times));
  CaseResult result;
  result.step_case = step_case;
  result.work = WorkOf(step_case, weights_, runner_.limits(), options_.tokens);
  result.median.wall = MedianOf(times, [](const StepTimes& step) { return step.wall; });
  result.median.device = MedianOf(times, [](const StepTimes& step) { return step.device; });
  for (size_t kind = 0; kind < kNumStageKinds; ++kind) {
    result.median.stages[kind] =
        MedianOf(times, [kind](const StepTimes& step) { return step.stages[kind]; });
  }
  double total = 0;
  for (const StepTimes& step : times) {
    total += step.wall;
    result.slowest_wall = std::max(result.slowest_wall, step.wall);
  }
  const double tokens = step_case.is_prompt
                            ? static_cast<double>(options_.repetitions) * step_case.prompt_tokens
                            : static_cast<double>(times.size()) * step_case.sequences;
  result.tokens_per_second = tokens / total;
  return result;
}

}  // namespace tandem::bench
