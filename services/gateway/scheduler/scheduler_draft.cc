// Drafted rows: guesses of drafters that the next step verifies.
#include <algorithm>

#include "services/common/base/check.h"
#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {

void Scheduler::FindDraftPlaces(DraftPlaces& found, const LateMask& late_mask) const {
  found.places.clear();
  found.num_rows = 0;
  found.can_queue = true;
  uint32_t num_constrained = 0;
  for (const Sequence* sequence : running_.sequences()) {
    const bool all_known = sequence->num_known == sequence->tokens.size();
    const bool under_way = sequence->num_remaining() == 0;
    if (sequence->pooled || sequence->awaits_take) continue;
    if (!under_way && !sequence->decoding()) continue;
    ++found.num_rows;
    if (sequence->constrained && !MayBeFed(*sequence, late_mask)) {
      ++num_constrained;
      // While its token is being decided nothing is known of what may follow.
      if (under_way) continue;
    } else {
      found.can_queue = found.can_queue && sequence->guess.has_value();
    }
    if (sequence->constrained && sequence->last_served == 0) continue;
    const uint32_t room = DraftRoom(*sequence);
    const uint32_t taken = under_way ? 1 : 0;
    if (!all_known || sequence->num_known <= sequence->prompt_len || room <= taken) continue;
    found.places.push_back({sequence->id, room - taken, under_way});
  }
  // Steps are queued past constrained sequences, not for them.
  if (num_constrained == found.num_rows) found.can_queue = false;
}

void Scheduler::Draft(uint64_t id, std::span<const uint32_t> guesses, OutputNeeds needs) {
  Sequence* const sequence = Find(id);
  TANDEM_CHECK(sequence != nullptr && !sequence->pooled);
  sequence->draft.assign(guesses.begin(), guesses.end());
  sequence->draft_needs = needs;
}

void Scheduler::AwaitDraft(uint64_t id, bool awaits) {
  Sequence* const sequence = Find(id);
  TANDEM_CHECK(sequence != nullptr);
  sequence->awaits_draft = awaits;
}

uint32_t Scheduler::DraftRoom(const Sequence& sequence) const {
  const uint64_t most =
      std::min<uint64_t>(max_sequence_len_, uint64_t{sequence.prompt_len} + sequence.max_answer);
  return most > uint64_t{sequence.num_known} + 1
             ? static_cast<uint32_t>(most - sequence.num_known - 1)
             : 0;
}

// Last of all, so that a guess takes no row, output, table entry or block from a row that is known
// to be wanted, and preempts nothing.
void Scheduler::PlanDrafts() {
  for (PlannedRows& planned : plan_) {
    Sequence& sequence = *planned.sequence;
    if (sequence.draft.empty()) continue;
    const uint32_t end = sequence.num_computed + planned.num_rows;
    if (end == sequence.tokens.size() && end == sequence.num_known) {
      AddUsage(planned, -1);
      const OutputNeeds plain = sequence.needs;
      sequence.needs = sequence.draft_needs;
      const uint32_t count = FitDraft(sequence, end);
      if (count == 0) sequence.needs = plain;
      const auto first = sequence.draft.begin();
      sequence.tokens.insert(sequence.tokens.end(), first, first + count);
      planned.num_rows += count;
      TANDEM_CHECK(sequence.blocks.Extend(end + count));
      AddUsage(planned, 1);
    }
    sequence.draft.clear();
  }
}

uint32_t Scheduler::FitDraft(const Sequence& sequence, uint32_t end) const {
  const StepLimits& limits = options_.limits;
  const uint64_t coverable = sequence.blocks.NumCoverable();
  const uint32_t base = end - sequence.num_computed;
  const uint32_t max_outputs =
      sequence.needs.logits || logit_samples_ > 0 ? limits.max_logit_outputs : limits.max_outputs;
  auto count = static_cast<uint32_t>(std::min<size_t>(sequence.draft.size(), DraftRoom(sequence)));
  for (; count > 0; --count) {
    if (rows_used_ + base + count <= max_rows_ && uint64_t{end} + count <= coverable &&
        outputs_used_ + sequence.NumOutputs(base) + count <= max_outputs &&
        (!sequence.constrained || masks_used_ + 1 + count <= limits.max_sequences) &&
        table_used_ + 2 * uint64_t{pools_.BlocksFor(end + count)} <= limits.max_table_len) {
      break;
    }
  }
  return count;
}

}  // namespace tandem::gateway
