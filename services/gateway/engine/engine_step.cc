// Engine: one step, from the scheduler's choice to the tokens decided.
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/executor/placement_moved.h"
#include "services/gateway/executor/step_power.h"

namespace tandem::gateway {
namespace {

// Between two reports of how far the requests are.
constexpr absl::Duration kProgressPause = absl::Milliseconds(10);
// Of the time between tokens, what a step with prompt rows is to take: steps differ from what they
// took before.
constexpr double kTargetShare = 0.9;

}  // namespace

void Engine::RunOneStep() {
  if (CopiesDue()) {
    if (!flights_.empty()) return WaitForStep();
    RunCopies();
    if (recovery_.down()) return;
  }
  TakeConstraintWork(false);
  ChooseGuesses();
  StepRules rules{.late_mask = MayBeLate(), .feeds = executor_->feeds()};
  if (options_.token_target > absl::ZeroDuration()) {
    rules.prompt_rows = [this](uint32_t decode_rows) { return PromptRowsBeside(decode_rows); };
  }
  if (executor_->depth() > 1 && !rules.feeds) {
    rules.prompt_steps = executor_->prompt_depth();
    rules.decoding = [this](uint32_t decoding) { return executor_->DecodeRows(decoding); };
  }
  const ScheduledStep* step = refused_before_ ? nullptr : scheduler_->Schedule(rules);
  if (step != nullptr) SubmitStep(*step);
  const bool room = flights_.size() < executor_->depth();
  if (!flights_.empty() && (step == nullptr || !room)) WaitForStep();
  if (flights_.empty() && step == nullptr) {
    last_wait_end_ = absl::InfinitePast();
    TakeConstraintWork(true);
  }
}

uint32_t Engine::PromptRowsBeside(uint32_t decode_rows) const {
  return admission_.PromptRowsWithin(decode_rows, kTargetShare * options_.token_target);
}

void Engine::SubmitStep(const ScheduledStep& step) {
  const absl::Time now = absl::Now();
  for (const ScheduledRows& rows : step.rows) {
    RequestRun& run = *runs_.at(rows.sequence);
    if (!run.MarkStarted(now, rows.first_position)) continue;
    BeginDrafting(rows.sequence, run, {});
    for (EngineObserver* observer : options_.observers) {
      observer->RequestStarted(rows.sequence, run.request().api, run.arrived(), now);
    }
  }
  StepCall call{.lane = num_submitted_++ % executor_->depth(),
                .step_id = step.batch.header.step_id,
                .another_follows = step.another_follows};
  counters_.step_bytes += WriteStep(step.batch, executor_->StepArea(call.lane));
  call.masks_follow = WriteMasks(step, call.lane);
  for (const ScheduledPicture& picture : step.pictures) {
    executor_->WriteSoftTokens(call.lane, picture.first_row, picture.soft_tokens);
  }
  if (!flights_.empty()) ++counters_.steps_queued;
  NoteSubmitted(now);
  flights_.push_back(
      {.step = &step,
       .lane = call.lane,
       .queued = !flights_.empty(),
       .masks_follow = call.masks_follow,
       .begin = now,
       .rows = options_.observers.empty() ? std::vector<RequestRows>() : RowsOf(step)});
  for (EngineObserver* observer : options_.observers) {
    observer->StepBegins({options_.replica, call.step_id}, flights_.back().rows, call.trace);
  }
  executor_->Submit(std::move(call));
  Publish();
}

void Engine::WaitForStep() {
  EndOldest();
  if (!flights_.empty() && flights_.front().masks_follow) WriteLateMasks(flights_.front());
}

void Engine::EndOldest() {
  const auto timings = executor_->Wait();
  if (!timings.ok()) return FailStep(timings.status());
  const Flight flight = std::move(flights_.front());
  const ScheduledStep& step = *flight.step;
  flights_.pop_front();
  if (!options_.observers.empty()) ReportStep(flight, *timings, absl::OkStatus());
  refused_before_ = false;
  scheduler_->StepDone();
  const absl::Time now = absl::Now();
  last_step_took_ = now - flight.begin;
  const absl::Duration took = now - std::max(flight.begin, last_wait_end_);
  NoteLoad(flight, now);
  NoteStep(flight);
  last_wait_end_ = now;
  ChargeDevices(step, *timings);
  for (uint32_t o = 0; o < step.outputs.size(); ++o) TakeOutput(flight, o);
  for (uint32_t p = 0; p < step.batch.pooled.size(); ++p) TakePooled(flight, p);
  if (step.batch.header.num_masks > 0) late_masks_.StepTook(took, absl::Now() - now);
  if (speculator_ != nullptr) speculator_->StepEnds();
}

void Engine::NoteLoad(const Flight& flight, absl::Time now) {
  uint32_t decode_rows = 0, prompt_rows = 0;
  for (const ScheduledRows& rows : flight.step->rows) {
    RequestRun* const run = FindRun(rows.sequence);
    if (run != nullptr) run->NoteComputed(rows.first_position + rows.num_rows);
    const bool decodes = rows.num_rows == 1 + rows.num_drafted;
    (decodes ? decode_rows : prompt_rows) += rows.num_rows;
    decoded_ += decodes ? 1 : 0;
  }
  const bool at_once = last_wait_end_ != absl::InfinitePast();
  admission_.StepTook(decode_rows, prompt_rows, now - (at_once ? last_wait_end_ : flight.begin));
  if (now - progress_at_ < kProgressPause) return;
  progress_at_ = now;
  progress_.clear();
  for (const auto& [id, run] : runs_) {
    if (run->started()) progress_.push_back({id, run->prompt_left(), run->num_decided()});
  }
  uint64_t accepted = 0;
  for (const DrafterCounts& drafter : snapshot_.drafters) accepted += drafter.accepted;
  if (decoded_ > 0) {
    admission_.SetPace(1.0 +
                       static_cast<double>(accepted - accepted_) / static_cast<double>(decoded_));
  }
  decoded_ = 0;
  accepted_ = accepted;
  const SchedulerLoad load = scheduler_->load();
  admission_.Progress(progress_, load.waiting > 0 ? load.running : options_.max_sequences);
}

RequestRun* Engine::FindRun(uint64_t id) {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second.get();
}

void Engine::ChargeDevices(const ScheduledStep& step, const std::vector<SegmentTiming>& timings) {
  const Plan& plan = executor_->plan();
  std::vector<uint64_t> device_ns(plan.workers.size(), 0);
  for (const SegmentTiming& timing : timings) {
    if (timing.segment_index >= plan.segments.size()) continue;
    device_ns[plan.segments[timing.segment_index].worker] += timing.device_ns;
  }
  const std::vector<double> joules = JoulesOf(plan, timings);
  const double num_rows = step.batch.header.num_rows;
  for (const ScheduledRows& rows : step.rows) {
    RequestRun* const run = FindRun(rows.sequence);
    if (run == nullptr) continue;  // ended while the step was under way
    for (size_t w = 0; w < plan.workers.size(); ++w) {
      const double share = rows.num_rows / num_rows;
      run->AddDeviceTime(plan.workers[w].name, share * 1e-9 * static_cast<double>(device_ns[w]),
                         share * joules[w]);
    }
  }
}

void Engine::TakeOutput(const Flight& flight, uint32_t o) {
  const ScheduledStep& step = *flight.step;
  const ScheduledOutput& output = step.outputs[o];
  const uint64_t step_id = step.batch.header.step_id;
  // The request has ended, or the row was computed with a rejected token.
  if (!scheduler_->IsValid(step_id, output.sequence, output.position)) return;
  // Its token is forced.
  if (output.sample && !scheduler_->Decides(step_id, output.sequence, output.position)) return;
  RequestRun& run = *runs_.at(output.sequence);
  if (output.sample) return TakeSampledOutput(output.sequence, run, flight, o);
  absl::Status status =
      run.AddPromptToken(step.batch.outputs[o].target, executor_->Output(flight.lane, o));
  if (!status.ok()) End(output.sequence, std::move(status));
}

void Engine::TakePooled(const Flight& flight, uint32_t p) {
  const ScheduledRows& rows = flight.step->rows[flight.step->batch.pooled[p]];
  // Not if it ended while the step was under way, or if rows before these are computed again.
  const uint64_t step_id = flight.step->batch.header.step_id;
  if (!scheduler_->IsValid(step_id, rows.sequence, rows.first_position)) return;
  RequestRun* const run = runs_.at(rows.sequence).get();
  const auto whole =
      run->AddPooled(rows.first_position, rows.num_rows, executor_->Pooled(flight.lane, p));
  if (!whole.ok()) return End(rows.sequence, whole.status());
  if (!*whole) return;
  counters_.prompt_tokens += run->request().prompt.size();
  End(rows.sequence, absl::OkStatus(), v1::FINISH_REASON_STOP);
}

void Engine::TakeSampledOutput(uint64_t id, RequestRun& run, const Flight& flight, uint32_t o) {
  if (run.num_decided() == 0) counters_.prompt_tokens += run.request().prompt.size();
  const bool has_logits = flight.step->batch.header.want_logits != 0;
  const OutputResult& result = executor_->Output(flight.lane, o);
  const std::span<const float> logits =
      has_logits ? executor_->Logits(flight.lane, o) : std::span<const float>();
  const bool guessed = flight.step->outputs[o].guessed;
  if (run.constrained()) {
    if (guessed) NoteAccepted(run);
    return TakeConstrainedOutput(id, run, result, logits, executor_->Guess(flight.lane, o),
                                 guessed);
  }
  auto outcome = run.TakeSample(result, logits, rules_);
  if (!outcome.ok()) return End(id, outcome.status());
  if (guessed) NoteAccepted(run);
  if (run.near_tie()) ++counters_.near_ties;
  TakeOutcome(id, run, *std::move(outcome), executor_->Guess(flight.lane, o), guessed);
}

void Engine::TakeOutcome(uint64_t id, RequestRun& run, RequestRun::Outcome outcome, uint32_t guess,
                         bool guessed) {
  const uint64_t num_tokens = outcome.update.tokens.size();
  counters_.completion_tokens += num_tokens;
  if (num_tokens > 0 && run.num_decided() == num_tokens) {
    for (EngineObserver* observer : options_.observers) {
      observer->RequestFirstToken(id, run.request().api, run.arrived(), *run.first_token_at());
    }
  }
  const bool over = outcome.finish != v1::FINISH_REASON_UNSPECIFIED;
  if (!over) {
    scheduler_->Append(id, outcome.tokens.front(), run.needs(), guess);
    NoteDecided(id, outcome.tokens, guessed);
    if (outcome.tokens.size() > 1) {
      scheduler_->AppendForced(id, std::span(outcome.tokens).subspan(1));
    }
  }
  switch (run.stream()->Push(std::move(outcome.update))) {
    case TokenStream::PushResult::kMerged:
      break;
    case TokenStream::PushResult::kNotify:
      if (!over) notifier_->Post(run.stream());  // at the end, End posts
      break;
    case TokenStream::PushResult::kFull:
      return End(id, absl::ResourceExhaustedError(absl::StrFormat(
                         "the reader is too slow: it left everything up to token %d unread",
                         run.num_decided())));
  }
  if (over) End(id, absl::OkStatus(), outcome.finish);
}

void Engine::FailStep(const absl::Status& status) {
  const ScheduledStep& step = *flights_.front().step;
  if (!IsPlacementMoved(status)) {
    LogError("step failed", {{"step", step.batch.header.step_id},
                             {"rows", step.batch.header.num_rows},
                             {"status", status.ToString()}});
  }
  if (!options_.observers.empty()) ReportStep(flights_.front(), {}, status);
  if (absl::IsUnavailable(status)) return LoseSteps(status);
  flights_.pop_front();
  // Rows that a refused step was to feed are computed again, once.
  const bool refused_before = refused_before_;
  refused_before_ = !flights_.empty();
  if (refused_before) return scheduler_->StepFailed();
  scheduler_->StepRefused();
  for (const ScheduledRows& rows : step.rows) {
    if (FindRun(rows.sequence) != nullptr) End(rows.sequence, status);
  }
}

void Engine::LoseSteps(const absl::Status& status) {
  std::set<uint64_t> ids;
  for (const Flight& flight : flights_) {
    for (const ScheduledRows& rows : flight.step->rows) ids.insert(rows.sequence);
  }
  flights_.clear();
  refused_before_ = false;
  for (const uint64_t id : ids) {
    RequestRun* const run = FindRun(id);
    if (run == nullptr || IsPlacementMoved(status)) continue;
    if (++run->failed_attempts < options_.max_attempts) continue;
    End(id, absl::UnavailableError(absl::StrFormat(
                "a worker was lost %d times in a row while computing this request: %s",
                options_.max_attempts, std::string(status.message()))));
  }
  recovery_.MarkLost(status);
}

}  // namespace tandem::gateway
