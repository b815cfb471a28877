// Engine: one step, from the scheduler's choice to the tokens decided.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/gateway/engine/engine.h"

namespace tandem::gateway {

void Engine::RunOneStep() {
  const ScheduledStep* step = scheduler_->Schedule();
  if (step == nullptr) return;
  MarkRows(*step);
  snapshot_.step_bytes += WriteStep(step->batch, executor_->StepArea(0));
  Publish();
  const auto timings = executor_->RunStep(0, step->batch.header.step_id);
  if (!timings.ok()) return FailStep(*step, timings.status());
  scheduler_->StepDone();
  ChargeDevices(*step, *timings);
  for (uint32_t o = 0; o < step->outputs.size(); ++o) TakeOutput(*step, o);
}

void Engine::MarkRows(const ScheduledStep& step) {
  const absl::Time now = absl::Now();
  for (const ScheduledRows& rows : step.rows) runs_.at(rows.sequence)->MarkStarted(now);
}

void Engine::ChargeDevices(const ScheduledStep& step, const std::vector<SegmentTiming>& timings) {
  const Plan& plan = executor_->plan();
  std::vector<uint64_t> device_ns(plan.workers.size(), 0);
  for (const SegmentTiming& timing : timings) {
    if (timing.segment_index >= plan.segments.size()) continue;
    device_ns[plan.segments[timing.segment_index].worker] += timing.device_ns;
  }
  const double num_rows = step.batch.header.num_rows;
  for (const ScheduledRows& rows : step.rows) {
    RequestRun& run = *runs_.at(rows.sequence);
    run.failed_attempts = 0;
    for (size_t w = 0; w < plan.workers.size(); ++w) {
      run.AddDeviceTime(plan.workers[w].name, 1e-9 * device_ns[w] * rows.num_rows / num_rows);
    }
  }
}

void Engine::TakeOutput(const ScheduledStep& step, uint32_t o) {
  const ScheduledOutput& output = step.outputs[o];
  const auto found = runs_.find(output.sequence);
  if (found == runs_.end()) return;  // ended by an earlier output of this step
  RequestRun& run = *found->second;
  const OutputResult& result = executor_->Output(0, o);
  if (output.sample) {
    const bool has_logits = step.batch.header.want_logits != 0;
    return TakeSampledOutput(output.sequence, run, result,
                             has_logits ? executor_->Logits(0, o) : std::span<const float>());
  }
  absl::Status status = run.AddPromptToken(step.batch.outputs[o].target, result);
  if (!status.ok()) End(output.sequence, std::move(status));
}

void Engine::TakeSampledOutput(uint64_t id, RequestRun& run, const OutputResult& result,
                               std::span<const float> logits) {
  if (run.num_decided() == 0) snapshot_.prompt_tokens += run.request().prompt.size();
  auto outcome = run.TakeSample(result, logits, rules_);
  if (!outcome.ok()) return End(id, outcome.status());
  snapshot_.completion_tokens += outcome->update.tokens.size();
  const bool over = outcome->finish != v1::FINISH_REASON_UNSPECIFIED;
  if (!over) scheduler_->Append(id, outcome->token, run.needs());
  switch (run.stream()->Push(std::move(outcome->update))) {
    case TokenStream::PushResult::kMerged:
      break;
    case TokenStream::PushResult::kNotify:
      if (!over) notifier_.Post(run.stream());  // at the end, End posts
      break;
    case TokenStream::PushResult::kFull:
      return End(id, absl::ResourceExhaustedError(absl::StrFormat(
                         "the reader is too slow: it left everything up to token %d unread",
                         run.num_decided())));
  }
  if (over) End(id, absl::OkStatus(), outcome->finish);
}

void Engine::FailStep(const ScheduledStep& step, const absl::Status& status) {
  LogError("step failed", {{"step", absl::StrFormat("%d", step.batch.header.step_id)},
                           {"rows", absl::StrFormat("%d", step.batch.header.num_rows)},
                           {"status", status.ToString()}});
  const std::vector<ScheduledRows> rows(step.rows.begin(), step.rows.end());
  if (absl::IsUnavailable(status)) {
    for (const ScheduledRows& r : rows) {
      if (++runs_.at(r.sequence)->failed_attempts < options_.max_attempts) continue;
      End(r.sequence, absl::UnavailableError(absl::StrFormat(
                          "a worker was lost %d times in a row while computing this request: %s",
                          options_.max_attempts, std::string(status.message()))));
    }
    down_ = status;
    down_since_ = absl::Now();
    return;
  }
  for (const ScheduledRows& r : rows) End(r.sequence, status);
}

}  // namespace tandem::gateway
