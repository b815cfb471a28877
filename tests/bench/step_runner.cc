#include "tests/bench/step_runner.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::bench {
namespace {

constexpr uint32_t kWarmUpSteps = 3;

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
  Clock::time_point since = Clock::now();
  TANDEM_RETURN_IF_ERROR(Queue(step, 0));
  return Finish(0, step.header.num_outputs, since);
}

absl::Status StepRunner::Queue(const StepBatch& step, uint32_t lane) {
  const Clock::time_point start = Clock::now();
  TANDEM_RETURN_IF_ERROR(runner_.SubmitStep(step, lane));
  hand_over_[lane] = std::chrono::duration<double>(Clock::now() - start).count();
  return absl::OkStatus();
}

absl::StatusOr<StepTimes> StepRunner::Finish(uint32_t lane, uint32_t num_outputs,
                                             Clock::time_point& since) {
  TANDEM_ASSIGN_OR_RETURN(const SegmentResult result, runner_.WaitForStep());
  const Clock::time_point end = Clock::now();
  StepTimes times;
  times.wall = std::chrono::duration<double>(end - since).count();
  since = end;
  times.device = static_cast<double>(result.device_ns) * 1e-9;
  times.hand_over = hand_over_[lane];
  for (const StageTime& stage : result.stage_times) {
    times.stages[static_cast<size_t>(stage.kind)] = static_cast<double>(stage.device_ns) * 1e-9;
  }
  if (options_.after_step) TANDEM_RETURN_IF_ERROR(options_.after_step());
  for (uint32_t o = 0; options_.fill && o < num_outputs; ++o) {
    if (runner_.Output(o, lane).num_nonfinite == 0) continue;
    return absl::InternalError(absl::StrFormat("output %d has %d logits that are no numbers", o,
                                               runner_.Output(o, lane).num_nonfinite));
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

void StepRunner::BeginDecode(const StepCase& step_case, const std::vector<uint32_t>& sequences,
                             const std::vector<uint32_t>& tokens) {
  steps_->Begin();
  steps_->set_num_candidates(options_.candidates);
  for (uint32_t s = 0; s < sequences.size(); ++s) {
    std::vector<uint32_t> chain = Tokens(step_case.chain);
    if (!tokens.empty()) chain[0] = tokens[s];
    const uint32_t row = steps_->AddRows(sequences[s], chain);
    if (tokens.empty()) steps_->FeedRow(row, (s + 1) * step_case.chain - 1);
    for (uint32_t i = 0; i < step_case.chain; ++i) steps_->AddOutput(row + i);
  }
}

absl::Status StepRunner::Decode(const StepCase& step_case, std::vector<StepTimes>& times,
                                std::vector<uint32_t>& tokens) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> sequences, Fill(step_case));
  std::vector<uint32_t> next = Tokens(step_case.sequences);
  const uint32_t lanes = options_.queue_steps ? 2 : 1;
  Clock::time_point since;
  const auto finish = [&](uint32_t i) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const StepTimes step, Finish(i % lanes, step_case.Outputs(), since));
    if (i >= std::min(kWarmUpSteps, options_.tokens - 1)) times.push_back(step);
    for (uint32_t s = 0; s < step_case.sequences; ++s) {
      const OutputResult& output = runner_.Output((s + 1) * step_case.chain - 1, i % lanes);
      tokens.push_back(output.num_candidates > 0 ? output.candidates[0].token : 0);
    }
    return absl::OkStatus();
  };
  for (uint32_t i = 0; i < options_.tokens; ++i) {
    BeginDecode(step_case, sequences, next);
    const StepBatch step = steps_->batch();
    if (i == 0 || !options_.queue_steps) since = Clock::now();
    TANDEM_RETURN_IF_ERROR(Queue(step, i % lanes));
    if (options_.queue_steps) {
      next.clear();
      if (i > 0) TANDEM_RETURN_IF_ERROR(finish(i - 1));
    } else {
      TANDEM_RETURN_IF_ERROR(finish(i));
      next.assign(tokens.end() - step_case.sequences, tokens.end());
    }
  }
  return options_.queue_steps ? finish(options_.tokens - 1) : absl::OkStatus();
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
  CaseResult result;
  TANDEM_RETURN_IF_ERROR(step_case.is_prompt ? Prompt(step_case, times)
                                             : Decode(step_case, times, result.tokens));
  result.queued = options_.queue_steps && !step_case.is_prompt;
  result.step_case = step_case;
  result.work = WorkOf(step_case, weights_, runner_.limits(), options_.tokens);
  result.median.wall = MedianOf(times, [](const StepTimes& step) { return step.wall; });
  result.median.device = MedianOf(times, [](const StepTimes& step) { return step.device; });
  result.median.hand_over = MedianOf(times, [](const StepTimes& step) { return step.hand_over; });
  for (size_t kind = 0; kind < kNumStageKinds; ++kind) {
    result.median.stages[kind] =
        MedianOf(times, [kind](const StepTimes& step) { return step.stages[kind]; });
  }
  double total = 0, device = 0;
  for (const StepTimes& step : times) {
    total += step.wall;
    device += step.device;
    result.slowest_wall = std::max(result.slowest_wall, step.wall);
  }
  const double tokens = step_case.is_prompt
                            ? static_cast<double>(options_.repetitions) * step_case.prompt_tokens
                            : static_cast<double>(times.size()) * step_case.Outputs();
  result.tokens_per_second = tokens / total;
  result.busy = device / total;
  return result;
}

}  // namespace tandem::bench
