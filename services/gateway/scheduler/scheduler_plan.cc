// Which rows the next step computes.
#include "services/gateway/scheduler/scheduler.h"

#include <algorithm>
#include <tuple>

#include "services/common/base/check.h"

namespace tandem::gateway {

const ScheduledStep* Scheduler::Schedule() {
  TANDEM_CHECK(under_way_.size() <= 1);
  if (!under_way_.empty() && !TakeGuesses(*under_way_.front())) return nullptr;
  plan_.clear();
  rows_used_ = outputs_used_ = logit_samples_ = 0;
  table_used_ = 0;
  PlanRunning();
  AdmitWaiting();
  if (plan_.empty()) return nullptr;
  const uint64_t after_step = under_way_.empty() ? 0 : under_way_.front()->batch.header.step_id;
  const uint64_t step_id = ++last_step_id_;
  const ScheduledStep& step = builders_[step_id % 2].Build(plan_, step_id, after_step);
  Issue(step_id);
  under_way_.push_back(&step);
  return &step;
}

bool Scheduler::GoesOn(const Sequence& sequence) const {
  const auto num_tokens = static_cast<uint32_t>(sequence.tokens.size()) + 1;
  return num_tokens < max_sequence_len_ && num_tokens - sequence.prompt_len < sequence.max_answer;
}

bool Scheduler::TakeGuesses(const ScheduledStep& under_way) {
  const auto for_each = [&](const auto& visit) {
    for (uint32_t o = 0; o < under_way.outputs.size(); ++o) {
      const ScheduledOutput& output = under_way.outputs[o];
      if (!output.sample || !Counts(under_way.batch.header.step_id, output.sequence)) continue;
      Sequence& sequence = *Find(output.sequence);
      if (sequence.tokens.size() == output.position + 1 && GoesOn(sequence)) visit(sequence, o);
    }
  };
  bool all_can = true;
  for_each([&](const Sequence& sequence, uint32_t) { all_can &= sequence.guess.has_value(); });
  if (!all_can) return false;
  for_each([](Sequence& sequence, uint32_t o) {
    sequence.tokens.push_back(kNoToken);
    sequence.fed_output = o;
  });
  return true;
}

void Scheduler::Issue(uint64_t step_id) {
  for (const PlannedRows& planned : plan_) {
    Sequence& sequence = *planned.sequence;
    if (sequence.num_known < sequence.tokens.size()) ++num_fed_rows_;
    if (sequence.last_served == 0 && sequence.looks_up) {
      num_tokens_looked_up_ += sequence.prompt_len;
      num_tokens_found_ += sequence.num_computed;
    }
    sequence.num_computed += planned.num_rows;
    sequence.next_prompt_output = std::max(sequence.next_prompt_output, sequence.num_computed);
    sequence.last_served = step_id;
  }
}

void Scheduler::PlanRunning() {
  order_ = running_;
  std::sort(order_.begin(), order_.end(), [](const Sequence* a, const Sequence* b) {
    return std::make_tuple(!a->decoding(), a->last_served, a->arrival) <
           std::make_tuple(!b->decoding(), b->last_served, b->arrival);
  });
  for (Sequence* sequence : order_) {
    // A sequence preempted for the sake of one before it has left running_.
    if (std::find(running_.begin(), running_.end(), sequence) == running_.end()) continue;
    PlanRows(*sequence);
  }
}

uint32_t Scheduler::FitBudgets(const Sequence& sequence) const {
  const StepLimits& limits = options_.limits;
  const uint32_t max_rows = std::min(options_.max_rows, limits.max_rows);
  uint32_t num_rows =
      std::min({sequence.num_remaining(), options_.chunk_rows, max_rows - rows_used_});
  for (; num_rows > 0; --num_rows) {
    const bool samples_logits = sequence.needs.logits && num_rows == sequence.num_remaining();
    const uint32_t max_outputs =
        samples_logits || logit_samples_ > 0 ? limits.max_logit_outputs : limits.max_outputs;
    const uint32_t end = sequence.num_computed + num_rows;
    if (outputs_used_ + sequence.NumOutputs(num_rows) <= max_outputs &&
        table_used_ + 2 * uint64_t{pools_.BlocksFor(end)} <= limits.max_table_len) {
      return num_rows;
    }
  }
  return 0;
}

void Scheduler::PlanRows(Sequence& sequence) {
  uint32_t num_rows = FitBudgets(sequence);
  if (num_rows == 0) return;
  sequence.blocks.ReleaseBefore(sequence.num_computed);
  if (sequence.blocks.NumCoverable() < uint64_t{sequence.num_computed} + num_rows) {
    ReleaseUnpublished();
  }
  if (!MakeRoom(sequence)) return;
  const uint64_t coverable = sequence.blocks.NumCoverable() - sequence.num_computed;
  num_rows = static_cast<uint32_t>(std::min<uint64_t>(num_rows, coverable));
  TANDEM_CHECK(sequence.blocks.Extend(sequence.num_computed + num_rows));
  plan_.push_back({&sequence, num_rows});
  AddUsage(plan_.back(), 1);
}

bool Scheduler::MakeRoom(const Sequence& sequence) {
  while (sequence.blocks.NumCoverable() <= sequence.num_computed) {
    const auto youngest = std::max_element(
        running_.begin(), running_.end(),
        [](const Sequence* a, const Sequence* b) { return a->arrival < b->arrival; });
    if ((*youngest)->arrival <= sequence.arrival) return false;
    Preempt(**youngest);
  }
  return true;
}

void Scheduler::Preempt(Sequence& victim) {
  ++num_preemptions_;
  const auto planned = std::find_if(plan_.begin(), plan_.end(), [&](const PlannedRows& rows) {
    return rows.sequence == &victim;
  });
  if (planned != plan_.end()) {
    AddUsage(*planned, -1);
    plan_.erase(planned);
  }
  std::erase(running_, &victim);
  victim.blocks.FreeAll();
  victim.num_computed = 0;
  victim.stale_step = last_step_id_;
  const auto place = std::find_if(waiting_.begin(), waiting_.end(), [&](const Sequence* waiting) {
    return waiting->arrival > victim.arrival;
  });
  waiting_.insert(place, &victim);
}

void Scheduler::AddUsage(const PlannedRows& planned, int sign) {
  const Sequence& sequence = *planned.sequence;
  const bool samples = planned.num_rows == sequence.num_remaining();
  rows_used_ += sign * planned.num_rows;
  outputs_used_ += sign * sequence.NumOutputs(planned.num_rows);
  logit_samples_ += sign * (samples && sequence.needs.logits ? 1 : 0);
  table_used_ += sign * int64_t{2} * pools_.BlocksFor(sequence.num_computed + planned.num_rows);
}

}  // namespace tandem::gateway
