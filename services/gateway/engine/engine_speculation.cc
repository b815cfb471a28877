// Engine: guesses of drafters (services/gateway/speculation).
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "services/common/tensor/dtype.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/speculation/rounding.h"

namespace tandem::gateway {

double Engine::RoundingOf(const Executor& executor) {
  bool int8 = false;
  for (const loader::v1::PackedTensor& tensor : executor.model().tensors()) {
    for (const loader::v1::Shard& shard : tensor.shards()) {
      int8 |= Traits(static_cast<DType>(shard.dtype())).block_elements > 1;
    }
  }
  return LogitRounding(executor.config().num_layers, int8);
}

void Engine::BeginDrafting(uint64_t id, const RequestRun& run, std::span<const uint32_t> answer) {
  const EngineRequest& request = run.request();
  if (speculator_ == nullptr || request.embedding) return;
  speculator_->Begin({.id = id,
                      .prompt = request.prompt,
                      .sampling = &request.sampling,
                      .prediction = request.prediction});
  for (const uint32_t token : answer) speculator_->TokenDecided(id, token, /*guessed=*/false);
  if (!answer.empty()) return;
  for (const Decision& decision : run.forced_first()) {
    speculator_->TokenDecided(id, decision.token, /*guessed=*/false);
  }
}

void Engine::ChooseGuesses() {
  if (speculator_ == nullptr || refused_before_) return;
  speculator_->StepEnds();  // tokens that a constraint decided between steps
  scheduler_->FindDraftPlaces(draft_places_, MayBeLate());
  const bool queues = executor_->depth() > 1 && draft_places_.can_queue;
  const auto choices = speculator_->Choose(draft_places_.places, draft_places_.num_rows, queues);
  for (size_t i = 0; i < choices.size(); ++i) {
    const DraftChoice& choice = choices[i];
    RequestRun& run = *runs_.at(choice.sequence);
    std::span<const uint32_t> guesses = choice.guesses;
    if (run.constrained()) guesses = guesses.first(MaskGuesses(run, guesses));
    scheduler_->AwaitDraft(choice.sequence, choice.wait || !guesses.empty());
    if (guesses.empty()) {
      // Guesses that no step has taken yet would have other masks.
      if (run.constrained()) scheduler_->Draft(choice.sequence, {}, {});
      continue;
    }
    run.set_drafter(choice.drafter);
    // Rows computed beside guesses leave other last bits in the KV cache, so later draws count too.
    run.WatchTies(rounding_);
    const auto num_guesses = static_cast<uint32_t>(guesses.size());
    scheduler_->Draft(choice.sequence, guesses, run.NeedsWithin(num_guesses));
  }
}

void Engine::NoteSubmitted(absl::Time now) {
  if (speculator_ == nullptr || !flights_.empty() || last_wait_end_ == absl::InfinitePast()) return;
  const absl::Duration gap = now - last_wait_end_ - speculator_->waited();
  speculator_->costs().GapTook(absl::ToDoubleSeconds(std::max(gap, absl::ZeroDuration())));
}

void Engine::NoteStep(const Flight& flight) {
  if (speculator_ == nullptr) return;
  const ScheduledStep& step = *flight.step;
  const absl::Time now = absl::Now();
  // Steps that only decode: every row has an output.
  const StepHeader& header = step.batch.header;
  if (header.num_outputs == header.num_rows && header.num_rows > 0) {
    const absl::Duration took = now - std::max(flight.begin, last_wait_end_);
    speculator_->costs().StepTook(header.num_rows, options_.step_seconds
                                                       ? options_.step_seconds(header.num_rows)
                                                       : absl::ToDoubleSeconds(took));
  }
  bool drafted = false;
  for (const ScheduledRows& rows : step.rows) {
    if (rows.num_drafted == 0) continue;
    drafted = true;
    RequestRun* const run = FindRun(rows.sequence);
    if (run == nullptr) continue;  // ended while the step was under way
    run->AddVerified(rows.num_drafted);
    snapshot_.drafters[run->drafter()].drafted += rows.num_drafted;
  }
  if (drafted) ++counters_.steps_drafted;
}

void Engine::NoteAccepted(RequestRun& run) {
  run.AddAccepted();
  ++snapshot_.drafters[run.drafter()].accepted;
}

void Engine::NoteDecided(uint64_t id, std::span<const uint32_t> tokens, bool guessed) {
  if (speculator_ == nullptr) return;
  // Tokens that a constraint forces follow the one that was drawn.
  for (const uint32_t token : tokens) {
    speculator_->TokenDecided(id, token, std::exchange(guessed, false));
  }
}

void Engine::PublishDrafters() {
  if (speculator_ == nullptr) return;
  for (size_t d = 0; d < speculator_->num_drafters(); ++d) {
    snapshot_.drafters[d].trouble = speculator_->drafter(d).trouble();
  }
}

void Engine::FillDrafters(const Snapshot& snapshot, v1::SchedulerStatus& status) const {
  for (size_t d = 0; d < snapshot.drafters.size(); ++d) {
    v1::DrafterStatus& drafter = *status.add_drafters();
    drafter.set_name(std::string(speculator_->drafter(d).name()));
    drafter.set_drafted_tokens(snapshot.drafters[d].drafted);
    drafter.set_accepted_tokens(snapshot.drafters[d].accepted);
    drafter.set_detail(snapshot.drafters[d].trouble);
    drafter.set_about(speculator_->drafter(d).about());
    drafter.set_busy_seconds(speculator_->drafter(d).busy_seconds());
  }
}

}  // namespace tandem::gateway
