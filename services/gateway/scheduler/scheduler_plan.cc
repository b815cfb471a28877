// Which rows the next step computes.
#include "services/gateway/scheduler/scheduler.h"

#include <algorithm>
#include <tuple>

#include "services/common/base/check.h"

namespace tandem::gateway {

const ScheduledStep* Scheduler::Schedule(const StepRules& rules) {
  TANDEM_CHECK(under_way_.size() < (rules.feeds ? 2 : kMostUnderWay));
  const auto has_drafts = [this](const ScheduledStep* step) { return HasDrafts(*step); };
  if (std::ranges::any_of(under_way_, has_drafts)) return nullptr;
  if (rules.feeds && !under_way_.empty() && !TakeGuesses(*under_way_.front(), rules)) {
    return nullptr;
  }
  PlanStep(rules);
  if (plan_.empty() && under_way_.empty() && !running_.empty()) {
    stuck_ = true;
    PlanStep(rules);
    stuck_ = false;
  }
  if (plan_.empty()) return nullptr;
  const bool fed = rules.feeds && !under_way_.empty();
  const uint64_t after_step = fed ? under_way_.front()->batch.header.step_id : 0;
  const uint64_t step_id = ++last_step_id_;
  ScheduledStep& step =
      builders_[step_id % kMostUnderWay].Build(plan_, step_id, after_step, pools_.block_tokens);
  Issue(step_id, rules.feeds);
  step.another_follows = rules.feeds && AnotherFollows(rules);
  step.decodes = plans_decodes_;
  tenants_.EndTurn(step_id);
  under_way_.push_back(&step);
  return &step;
}

void Scheduler::PlanStep(const StepRules& rules) {
  plan_.clear();
  plans_decodes_ = false;
  running_.BeginStep(last_step_id_ + 1);
  rows_used_ = outputs_used_ = logit_samples_ = masks_used_ = pictures_used_ = 0;
  table_used_ = 0;
  max_rows_ = std::min(options_.max_rows, options_.limits.max_rows);
  const std::vector<Tenant*>& in_turn = tenants_.InTurn();
  PlanDecodes(rules);
  if (rules.prompt_rows && rows_used_ > 0) {
    max_rows_ =
        std::min(max_rows_, rows_used_ + std::max(rules.prompt_rows(rows_used_), FreeRows()));
  }
  if (under_way_.size() >= rules.prompt_steps) return PlanDrafts();
  uint32_t first_rows = 0;  // of the first in turn that has any
  bool admits = true;
  for (const auto& [priority, count] : num_by_priority_) {
    bool all_fit = true;
    for (Tenant* tenant : in_turn) {
      PlanPromptsOf(*tenant, priority);
      if (admits) all_fit &= AdmitWaiting(*tenant, priority);
      if (first_rows > 0) continue;
      first_rows = NumPromptRows(*tenant);
      if (first_rows > 0) max_rows_ = std::min(max_rows_, rows_used_ + first_rows + FreeRows());
    }
    admits &= all_fit;
  }
  PlanDrafts();
}

uint32_t Scheduler::NumPromptRows(const Tenant& tenant) const {
  uint32_t num_rows = 0;
  for (const PlannedRows& planned : plan_) {
    const Sequence& sequence = *planned.sequence;
    const bool admitted = sequence.admitted_step > last_step_id_;
    if (&sequence.tenant == &tenant && (admitted || !sequence.decoding())) {
      num_rows += planned.num_rows;
    }
  }
  return num_rows;
}

bool Scheduler::GoesOn(const Sequence& sequence) const {
  const auto num_tokens = static_cast<uint32_t>(sequence.tokens.size()) + 1;
  return num_tokens < max_sequence_len_ && num_tokens - sequence.prompt_len < sequence.max_answer;
}

bool Scheduler::HasDrafts(const ScheduledStep& under_way) const {
  return std::ranges::any_of(under_way.rows, [this](const ScheduledRows& rows) {
    return rows.num_drafted > 0 && Find(rows.sequence) != nullptr;
  });
}

bool Scheduler::TakeGuesses(const ScheduledStep& under_way, const StepRules& rules) {
  const auto for_each = [&](const auto& visit) {
    for (uint32_t o = 0; o < under_way.outputs.size(); ++o) {
      const ScheduledOutput& output = under_way.outputs[o];
      const uint64_t step_id = under_way.batch.header.step_id;
      if (!output.sample || !IsValid(step_id, output.sequence, output.position)) continue;
      Sequence& sequence = *Find(output.sequence);
      if (sequence.constrained && !TakesLateMask(sequence, rules.late_mask)) continue;
      if (sequence.tokens.size() == output.position + 1 && GoesOn(sequence)) visit(sequence, o);
    }
  };
  bool all_can = true;
  for_each([&](const Sequence& sequence, uint32_t) { all_can &= !sequence.needs_token(); });
  if (!all_can) return false;
  for_each([](Sequence& sequence, uint32_t o) {
    sequence.tokens.push_back(kNoToken);
    sequence.fed_output = o;
    sequence.awaits_result = false;
  });
  return true;
}

bool Scheduler::RunsUnconstrained() const {
  return std::ranges::any_of(running_.sequences(),
                             [](const Sequence* sequence) { return !sequence->constrained; });
}

bool Scheduler::AnotherFollows(const StepRules& rules) const {
  const auto holds_others = [&rules](const PlannedRows& planned) {
    const Sequence& sequence = *planned.sequence;
    return sequence.constrained && !TakesLateMask(sequence, rules.late_mask) &&
           sequence.num_computed - planned.num_rows >= sequence.prompt_len;
  };
  const bool holds = masks_used_ > 0 && std::ranges::any_of(plan_, holds_others);
  bool follows = std::ranges::any_of(running_.sequences(), [holds](const Sequence* s) {
    return s->num_remaining() > 0 && !s->awaits_take && !(holds && s->constrained && s->decoding());
  });
  for (const PlannedRows& planned : plan_) {
    const Sequence& sequence = *planned.sequence;
    if (sequence.num_drafted() > 0) return false;  // its tokens are waited for
    if (sequence.num_remaining() > 0 || sequence.pooled || !GoesOn(sequence)) continue;
    if (sequence.constrained && !TakesLateMask(sequence, rules.late_mask)) continue;
    if (sequence.needs_token()) return false;  // likewise
    follows = true;
  }
  return follows;
}

void Scheduler::Issue(uint64_t step_id, bool feeds) {
  for (const PlannedRows& planned : plan_) {
    Sequence& sequence = *planned.sequence;
    const uint32_t num_drafted = sequence.num_drafted();
    if (num_drafted == 0 && sequence.num_known < sequence.tokens.size()) {
      ++counters_.speculative_rows;
    }
    // If it is preempted meanwhile, it waits for the token: one that feeds a step has a place for it.
    const bool decides = !feeds && num_drafted == 0 && sequence.NumSampled(planned.num_rows) > 0;
    if (decides || DecidesConstrained(planned)) sequence.awaits_result = true;
    if (sequence.last_served == 0 && sequence.looks_up) {
      counters_.prefix_tokens_looked_up += sequence.prompt_len;
      counters_.prefix_tokens_found += sequence.num_computed;
      counters_.prefix_tokens_missed += sequence.prompt_len - sequence.num_computed;
    }
    const uint32_t uncharged = std::max(sequence.num_computed, sequence.lost_until);
    sequence.num_computed += planned.num_rows;
    // Guesses are the gateway's own idea: those that are accepted are charged, as tokens would be.
    const uint32_t charged_to = sequence.num_computed - num_drafted;
    tenants_.Charge(sequence.tenant, charged_to - std::min(uncharged, charged_to), step_id);
    sequence.next_prompt_output = std::max(sequence.next_prompt_output, sequence.num_computed);
    sequence.last_served = step_id;
  }
}

// Those that are fed go on in every step.  Ends of prompts have masks too, but do not count: where
// each step had some, the others would wait for ever.
bool Scheduler::HoldsConstrained(const StepRules& rules) const {
  if (!rules.feeds || under_way_.empty()) return false;
  if (under_way_.front()->batch.header.num_masks == 0) return false;
  return std::ranges::any_of(under_way_.front()->rows, [this](const ScheduledRows& rows) {
    const Sequence* const sequence = Find(rows.sequence);
    return sequence != nullptr && sequence->constrained && sequence->awaits_result &&
           rows.first_position >= sequence->prompt_len;
  });
}

void Scheduler::PlanDecodes(const StepRules& rules) {
  order_ = running_.sequences();
  std::sort(order_.begin(), order_.end(), [](const Sequence* a, const Sequence* b) {
    return std::make_tuple(!a->decoding(), a->last_served, a->arrival) <
           std::make_tuple(!b->decoding(), b->last_served, b->arrival);
  });
  size_t most = order_.size();
  if (rules.decoding) {
    // Those of steps under way, whose tokens are not decided, too.
    const auto decoding =
        static_cast<uint32_t>(std::ranges::count_if(order_, [](const Sequence* sequence) {
          return sequence->decoding() || sequence->num_remaining() == 0;
        }));
    most = rules.decoding(decoding);
    // No more steps than that takes: a sequence that comes joins one of them when it ends.
    const auto steps = static_cast<size_t>(
        std::ranges::count_if(under_way_, [](const ScheduledStep* step) { return step->decodes; }));
    if (steps * most >= decoding) return;
  }
  const bool holds = HoldsConstrained(rules);
  for (Sequence* sequence : order_) {
    if (!sequence->decoding() || plan_.size() >= most) break;
    if (!holds || !sequence->constrained) PlanIfRunning(*sequence);
  }
  plans_decodes_ = !plan_.empty();
}

void Scheduler::PlanPromptsOf(const Tenant& tenant, int32_t priority) {
  // Preemption on the way removes sequences from running_, not from order_.
  for (Sequence* sequence : order_) {
    if (&sequence->tenant == &tenant && sequence->priority == priority && !sequence->decoding()) {
      PlanIfRunning(*sequence);
    }
  }
}

// A sequence that was preempted for an earlier one is no longer in running_.
void Scheduler::PlanIfRunning(Sequence& sequence) {
  const std::vector<Sequence*>& running = running_.sequences();
  if (std::ranges::find(running, &sequence) != running.end()) PlanRows(sequence);
}

// A picture's rows are all in one step.  Where steps beside others' answers have fewer, it has its turn
// in some of them nevertheless.
bool Scheduler::IsOverdue(const Sequence& sequence, uint32_t rows_left) const {
  const uint32_t least = sequence.LeastRows();
  const uint32_t most = std::min(options_.max_rows, options_.limits.max_rows);
  return least > 1 && least > rows_left && rows_used_ + least <= most &&
         last_step_id_ + 1 >= picture_step_id_ + kStepsOfPicture;
}

uint32_t Scheduler::FitBudgets(const Sequence& sequence) const {
  const StepLimits& limits = options_.limits;
  const uint32_t rows_left = max_rows_ > rows_used_ ? max_rows_ - rows_used_ : 0;
  uint32_t num_rows = std::min({sequence.num_remaining(), options_.chunk_rows, rows_left});
  if (IsOverdue(sequence, rows_left)) num_rows = sequence.LeastRows();
  for (; num_rows > 0; --num_rows) {
    const bool samples_logits = sequence.needs.logits && sequence.NumSampled(num_rows) > 0;
    const uint32_t max_outputs =
        samples_logits || logit_samples_ > 0 ? limits.max_logit_outputs : limits.max_outputs;
    const uint32_t end = sequence.num_computed + num_rows;
    if (outputs_used_ + sequence.NumOutputs(num_rows) <= max_outputs &&
        pictures_used_ + sequence.NumPictures(num_rows) <= limits.max_pictures &&
        table_used_ + 2 * uint64_t{pools_.BlocksFor(end)} <= limits.max_table_len) {
      return sequence.WholePictures(num_rows);
    }
  }
  return 0;
}

void Scheduler::PlanRows(Sequence& sequence) {
  // While a step has its rows it cannot be taken.
  if (sequence.awaits_take) return;
  uint32_t num_rows = FitBudgets(sequence);
  if (num_rows < std::min(sequence.num_remaining(), options_.chunk_rows)) {
    sequence.tenant.wants_rows = true;
  }
  if (num_rows == 0) return;
  if (rows_used_ + num_rows > max_rows_) picture_step_id_ = last_step_id_ + 1;
  ReleaseUnseen(sequence);
  if (sequence.blocks.NumCoverable() < uint64_t{sequence.num_computed} + num_rows) {
    running_.ReleaseUnpublished();
  }
  if (!MakeRoom(sequence)) return;
  const uint64_t coverable = sequence.blocks.NumCoverable() - sequence.num_computed;
  num_rows = sequence.WholePictures(static_cast<uint32_t>(std::min<uint64_t>(num_rows, coverable)));
  TANDEM_CHECK(sequence.blocks.Extend(sequence.num_computed + num_rows));
  plan_.push_back({&sequence, num_rows});
  AddUsage(plan_.back(), 1);
}

bool Scheduler::MakeRoom(const Sequence& sequence) {
  const uint64_t least = uint64_t{sequence.num_computed} + sequence.LeastRows();
  if (sequence.blocks.NumCoverable() >= least) return true;
  ReleaseKeptWindows();
  while (sequence.blocks.NumCoverable() < least) {
    if (imports_.DropLatest()) continue;
    Sequence* const victim = running_.VictimForRow(sequence, stuck_);
    if (victim == nullptr) return false;
    if (&victim->tenant != &sequence.tenant) ++counters_.fair_preemptions;
    Preempt(*victim);
  }
  return true;
}

void Scheduler::ReleaseKeptWindows() {
  for (Sequence* const sequence : running_.sequences()) {
    if (sequence->keep_window == Sequence::kNoPosition) continue;
    sequence->keep_window = Sequence::kNoPosition;
    ReleaseUnseen(*sequence);
  }
}

void Scheduler::ReleaseUnseen(Sequence& sequence) {
  const uint32_t seen_from = std::min(sequence.num_computed, sequence.keep_window);
  sequence.blocks.ReleaseBefore(seen_from, sequence.PictureBegin(seen_from));
}

void Scheduler::Preempt(Sequence& victim) {
  ++counters_.preemptions;
  const auto planned = std::find_if(plan_.begin(), plan_.end(), [&](const PlannedRows& rows) {
    return rows.sequence == &victim;
  });
  if (planned != plan_.end()) {
    AddUsage(*planned, -1);
    plan_.erase(planned);
  }
  running_.Remove(victim);
  victim.blocks.FreeAll();
  victim.draft.clear();
  victim.furthest = std::max(victim.furthest, victim.num_computed);
  victim.num_computed = 0;
  victim.stale_step = last_step_id_;
  Wait(victim);
}

void Scheduler::AddUsage(const PlannedRows& planned, int sign) {
  const Sequence& sequence = *planned.sequence;
  const bool samples = sequence.NumSampled(planned.num_rows) > 0;
  rows_used_ += sign * planned.num_rows;
  outputs_used_ += sign * sequence.NumOutputs(planned.num_rows);
  if (sequence.constrained) masks_used_ += sign * sequence.NumSampled(planned.num_rows);
  pictures_used_ += sign * sequence.NumPictures(planned.num_rows);
  logit_samples_ += sign * (samples && sequence.needs.logits ? 1 : 0);
  table_used_ += sign * int64_t{2} * pools_.BlocksFor(sequence.num_computed + planned.num_rows);
}

}  // namespace tandem::gateway
