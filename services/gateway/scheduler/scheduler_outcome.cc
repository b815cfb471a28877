// The outcome of a step: done, refused, failed, tokens decided.
#include "services/gateway/scheduler/scheduler.h"

#include <algorithm>
#include <span>

#include "services/common/base/check.h"

namespace tandem::gateway {

void Scheduler::StepDone() {
  TANDEM_CHECK(!under_way_.empty());
  ++counters_.steps;
  const uint64_t step_id = under_way_.front()->batch.header.step_id;
  for (const ScheduledRows& rows : under_way_.front()->rows) {
    Sequence* const sequence = Find(rows.sequence);
    if (sequence == nullptr) continue;
    const uint32_t end = rows.first_position + rows.num_rows;
    const bool is_void = step_id <= sequence->void_step;
    if (!is_void) sequence->prompt_outputs_done = std::max(sequence->prompt_outputs_done, end);
    if (sequence->awaits_result && !is_void && end == sequence->tokens.size()) {
      sequence->awaits_result = false;
      sequence->awaits_decision = true;
    }
    if (step_id <= sequence->stale_step || is_void) continue;
    // Drafted rows are published when a later step is done, if they are accepted.
    TANDEM_CHECK(end - rows.num_drafted <= sequence->num_known);
    sequence->blocks.Publish(std::span(sequence->tokens).first(end - rows.num_drafted));
  }
  under_way_.pop_front();
}

void Scheduler::StepRefused() {
  TANDEM_CHECK(!under_way_.empty());
  under_way_.pop_front();
}

void Scheduler::StepFailed() {
  TANDEM_CHECK(!under_way_.empty());
  for (const ScheduledRows& rows : under_way_.front()->rows) {
    Sequence* const sequence = Find(rows.sequence);
    if (sequence == nullptr) continue;
    sequence->tokens.resize(sequence->num_known);
    sequence->awaits_result = false;
    sequence->draft.clear();
    sequence->next_prompt_output = sequence->prompt_outputs_done;
    // Its rows in later steps began from these, or count on their outputs.
    sequence->void_step = sequence->last_served;
    sequence->void_position = 0;
    const std::vector<Sequence*>& running = running_.sequences();
    if (std::ranges::find(running, sequence) != running.end()) Preempt(*sequence);
  }
  under_way_.pop_front();
}

bool Scheduler::IsValid(uint64_t step_id, uint64_t id, uint32_t position) const {
  const Sequence* const sequence = Find(id);
  return sequence != nullptr &&
         (step_id > sequence->void_step || position < sequence->void_position);
}

bool Scheduler::Decides(uint64_t step_id, uint64_t id, uint32_t position) const {
  return IsValid(step_id, id, position) && position + 1 == Find(id)->num_known;
}

void Scheduler::Append(uint64_t id, uint32_t token, OutputNeeds needs, uint32_t guess) {
  Sequence* const sequence = Find(id);
  TANDEM_CHECK(sequence != nullptr);
  sequence->needs = needs;
  sequence->draft.clear();
  const uint32_t position = sequence->num_known++;
  TANDEM_CHECK(position < max_sequence_len_);
  if (position == sequence->tokens.size()) {
    // It may have been preempted since, or its KV lost.
    TANDEM_CHECK(sequence->num_computed == position || sequence->awaits_decision);
    sequence->awaits_decision = false;
    sequence->tokens.push_back(token);
    return;
  }
  sequence->awaits_decision = false;
  const bool drafted = sequence->tokens[position] != kNoToken;
  if (drafted) guess = sequence->tokens[position];
  sequence->tokens[position] = token;
  // No row began from the guess.
  if (sequence->num_computed <= position) return;
  if (guess == token) {
    if (drafted) {
      tenants_.Charge(sequence->tenant, 1, sequence->last_served);
    } else {
      ++counters_.accepted_tokens;
    }
    return;
  }
  // The row that began from the guess, in the step under way if it was fed and else in this one,
  // is void, and so are those after it.  They are overwritten in place.
  if (!drafted) ++counters_.rejected_tokens;
  TANDEM_CHECK(drafted || !under_way_.empty());
  Reject(*sequence, position);
  sequence->tokens.resize(position + 1);
}

void Scheduler::Reject(Sequence& sequence, uint32_t position) {
  sequence.void_step = sequence.last_served;
  sequence.void_position = position;
  sequence.num_computed = position;
  sequence.awaits_result = false;
}

void Scheduler::TakeBack(uint64_t id) {
  Sequence* const sequence = Find(id);
  TANDEM_CHECK(sequence != nullptr && sequence->constrained);
  if (sequence->num_known == sequence->tokens.size()) return;
  if (sequence->num_computed > sequence->num_known) Reject(*sequence, sequence->num_known);
  sequence->tokens.resize(sequence->num_known);
  sequence->awaits_decision = true;
}

void Scheduler::AppendForced(uint64_t id, std::span<const uint32_t> tokens) {
  Sequence* const sequence = Find(id);
  TANDEM_CHECK(sequence != nullptr && sequence->constrained && !sequence->awaits_decision);
  // A row under way decides nothing then.
  sequence->awaits_result = false;
  sequence->tokens.insert(sequence->tokens.end(), tokens.begin(), tokens.end());
  sequence->num_known += static_cast<uint32_t>(tokens.size());
  TANDEM_CHECK(sequence->num_known == sequence->tokens.size());
  TANDEM_CHECK(sequence->num_known <= max_sequence_len_);
}

}  // namespace tandem::gateway
