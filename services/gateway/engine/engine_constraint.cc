// Engine: answers that follow a constraint.
#include <algorithm>
#include <cstring>

#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/gateway/engine/engine.h"

namespace tandem::gateway {
namespace {

// How long a step waits for masks while nothing else runs.  Later ones are in the next step.
constexpr absl::Duration kMaskWait = absl::Milliseconds(2);
// How long the engine's thread waits at once when there is nothing to do but masks.
constexpr absl::Duration kIdleWait = absl::Milliseconds(20);

}  // namespace

LateMask Engine::MayBeLate() const {
  if (!executor_->takes_late_masks()) return nullptr;
  // Steps of other answers are queued in any case: without late masks the constrained ones would have
  // rows in every second one.
  if (!late_masks_.Pay() && !scheduler_->RunsUnconstrained()) return nullptr;
  return [this](uint64_t id) {
    const RequestRun& run = *runs_.at(id);
    return !run.has_work && IsQuick(run);
  };
}

void Engine::WriteMask(uint32_t lane, uint32_t index, std::span<const uint32_t> mask) {
  const std::span<std::byte> area = executor_->MaskArea(lane, index);
  TANDEM_CHECK(mask.size_bytes() == area.size());
  std::memcpy(area.data(), mask.data(), area.size());
  counters_.step_bytes += area.size();
}

bool Engine::WriteMasks(const ScheduledStep& step, uint32_t lane) {
  if (step.batch.header.num_masks == 0) return false;
  bool others_follow = false;
  // Outputs of guesses follow those of their sequence.
  const ScheduledOutput* before = nullptr;
  size_t num_before = 0;
  for (uint32_t o = 0; o < step.outputs.size(); ++o) {
    const uint32_t index = step.batch.outputs[o].mask;
    if (index == kNoMask) continue;
    const ScheduledOutput& output = step.outputs[o];
    others_follow |= output.fed;
    if (output.fed) continue;
    num_before = before != nullptr && before->sequence == output.sequence ? num_before + 1 : 0;
    before = &output;
    WriteMask(lane, index, runs_.at(output.sequence)->mask(num_before));
  }
  return others_follow;
}

void Engine::WriteLateMasks(Flight& flight) {
  const ScheduledStep& step = *flight.step;
  const uint64_t step_id = step.batch.header.step_id;
  for (uint32_t o = 0; o < step.outputs.size(); ++o) {
    const uint32_t index = step.batch.outputs[o].mask;
    const ScheduledOutput& output = step.outputs[o];
    if (index == kNoMask || !output.fed) continue;
    if (scheduler_->Decides(step_id, output.sequence, output.position)) {
      WriteMask(flight.lane, index, runs_.at(output.sequence)->mask());
    } else {
      // Nobody looks at the output, but it must have one.
      std::ranges::fill(executor_->MaskArea(flight.lane, index), std::byte{0xFF});
    }
  }
  flight.masks_follow = false;
  executor_->MasksReady();
}

void Engine::TakeConstrainedOutput(uint64_t id, RequestRun& run, const OutputResult& result,
                                   std::span<const float> logits, uint32_t guess, bool guessed) {
  const auto complete = run.Decide(result, logits);
  if (!complete.ok()) return End(id, complete.status());
  if (run.near_tie()) ++counters_.near_ties;
  if (*complete) return TakeOutcome(id, run, run.Conclude(nullptr, rules_), kNoToken);
  // The outputs of guesses in the same step follow at once; what they need is known but for the last.
  const bool waits = run.num_guess_masks() == 0;
  if (!waits || IsQuick(run)) {
    auto work = MakeWork(id, run);
    work->only_quick = waits && options_.quick_constraint_work < UINT64_MAX;
    RunConstraintWork(constraint_encoder_, *work);
    if (!work->cut_off) return FinishWork(*work, guess, guessed);
  }
  scheduler_->TakeBack(id);
  PostWork(id, run);
}

bool Engine::IsQuick(const RequestRun& run) const {
  return options_.quick_constraint_work > 0 && !run.request().constraint->slow();
}

std::unique_ptr<ConstraintWork> Engine::MakeWork(uint64_t id, const RequestRun& run) const {
  auto work = run.MakeWork(id);
  work->most_quick = options_.quick_constraint_work;
  return work;
}

void Engine::PostWork(uint64_t id, RequestRun& run) {
  run.has_work = true;
  constraint_pool_.Post(MakeWork(id, run));
}

size_t Engine::MaskGuesses(RequestRun& run, std::span<const uint32_t> guesses) const {
  if (!IsQuick(run)) guesses = {};
  return run.MakeGuessMasks(guesses, constraint_encoder_, options_.quick_constraint_work);
}

void Engine::TakeConstraintWork(bool idle) {
  if (!constraint_pool_.busy()) return;
  const absl::Time now = absl::Now();
  const absl::Time until = !flights_.empty() ? now : now + (idle ? kIdleWait : kMaskWait);
  for (const auto& work : constraint_pool_.Take(until, idle)) FinishWork(*work);
}

void Engine::FinishWork(ConstraintWork& work, uint32_t guess, bool guessed) {
  RequestRun* const run = FindRun(work.request);
  if (run == nullptr) return;  // ended meanwhile
  run->has_work = false;
  if (!work.status.ok()) return End(work.request, work.status);
  if (!work.mask.empty()) {
    for (EngineObserver* observer : options_.observers) observer->MaskMade(work.time);
  }
  if (work.token.has_value()) {
    late_masks_.TokenDecided(!work.forced.empty());
    return TakeOutcome(work.request, *run, run->Conclude(&work, rules_), guess, guessed);
  }
  const std::vector<uint32_t> forced = run->BeginConstraint(work, rules_);
  const absl::Status status = scheduler_->Add(run->MakeSequenceSpec(work.request));
  if (!status.ok()) return End(work.request, status);
  if (!forced.empty()) scheduler_->AppendForced(work.request, forced);
}

}  // namespace tandem::gateway
