// Engine: reports to the observers.
#include <algorithm>

#include "services/gateway/engine/engine.h"

namespace tandem::gateway {

void Engine::ReportRefused(Api api, const absl::Status& status) const {
  for (EngineObserver* observer : options_.observers) observer->RequestRefused(api, status);
}

std::vector<RequestRows> Engine::RowsOf(const ScheduledStep& step) const {
  std::vector<RequestRows> all;
  all.reserve(step.rows.size());
  for (const ScheduledRows& rows : step.rows) {
    const size_t prompt_len = runs_.at(rows.sequence)->request().prompt.size();
    all.push_back(
        {.request = rows.sequence,
         .first_position = rows.first_position,
         .num_rows = rows.num_rows,
         .decode = rows.num_rows - rows.num_drafted == 1 && rows.first_position >= prompt_len,
         .num_drafted = rows.num_drafted});
  }
  return all;
}

void Engine::ReportStep(const Flight& flight, std::span<const SegmentTiming> timings,
                        const absl::Status& status) {
  StepReport report{.key = {options_.replica, flight.step->batch.header.step_id},
                    .lane = flight.lane,
                    .queued = flight.queued,
                    .begin = flight.begin,
                    .turn = std::max(flight.begin, last_step_end_),
                    .end = absl::Now(),
                    .requests = flight.rows,
                    .segments = timings,
                    .plan = &executor_->plan(),
                    .status = status};
  for (const RequestRows& rows : flight.rows) {
    (rows.decode ? report.decode_rows : report.prompt_rows) += rows.num_rows;
    report.drafted_rows += rows.num_drafted;
  }
  last_step_end_ = report.end;
  for (EngineObserver* observer : options_.observers) observer->StepEnded(report);
}

void Engine::ReportDraft(const DraftStep& step) const {
  StepReport report{.key = {options_.replica, step.step_id},
                    .begin = step.begin,
                    .turn = step.begin,
                    .end = step.end,
                    .segments = step.segments,
                    .plan = step.plan};
  std::vector<RequestRows> requests;
  for (const DraftStep::Rows& rows : step.rows) {
    requests.push_back({.request = rows.sequence,
                        .first_position = rows.first_position,
                        .num_rows = rows.num_rows});
    report.prompt_rows += rows.num_rows;
  }
  report.requests = requests;
  for (EngineObserver* observer : options_.observers) observer->DraftStepEnded(report);
}

void Engine::ReportEnd(uint64_t id, const RequestRun& run, const absl::Status& status,
                       v1::FinishReason reason, absl::Time now) const {
  constexpr absl::Time kNever = absl::InfiniteFuture();
  const RequestReport report{.number = id,
                             .request = &run.request(),
                             .submitted = run.arrived(),
                             .started = run.started_at().value_or(kNever),
                             .first_token = run.first_token_at().value_or(kNever),
                             .last_token = run.last_token_at().value_or(kNever),
                             .end = now,
                             .completion_tokens = run.num_decided(),
                             .verified_guesses = run.num_verified(),
                             .accepted_guesses = run.num_accepted(),
                             .cached_tokens = run.cached_tokens(),
                             .status = status,
                             .reason = reason};
  for (EngineObserver* observer : options_.observers) observer->RequestEnded(report);
}

}  // namespace tandem::gateway
