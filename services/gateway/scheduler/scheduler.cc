#include "services/gateway/scheduler/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

absl::Status CheckPositive(const char* name, uint32_t value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("scheduler: %s is 0", name));
}

absl::Status CheckLimits(const StepLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CheckPositive("max_rows", limits.max_rows));
  TANDEM_RETURN_IF_ERROR(CheckPositive("max_sequences", limits.max_sequences));
  TANDEM_RETURN_IF_ERROR(CheckPositive("max_outputs", limits.max_outputs));
  TANDEM_RETURN_IF_ERROR(CheckPositive("max_logit_outputs", limits.max_logit_outputs));
  TANDEM_RETURN_IF_ERROR(CheckPositive("context_len", limits.context_len));
  TANDEM_RETURN_IF_ERROR(CheckPositive("block_tokens", limits.block_tokens));
  TANDEM_RETURN_IF_ERROR(CheckPositive("num_blocks[global]", limits.num_blocks[kGlobalGroup]));
  TANDEM_RETURN_IF_ERROR(CheckPositive("num_blocks[window]", limits.num_blocks[kWindowGroup]));
  const uint64_t table_len =
      2 * ((uint64_t{limits.context_len} + limits.block_tokens - 1) / limits.block_tokens);
  if (limits.max_table_len < table_len) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "scheduler: max_table_len is %d, one sequence of context_len %d alone takes %d",
        limits.max_table_len, limits.context_len, table_len));
  }
  return absl::OkStatus();
}

// Tokens that fit alone.  The last token is never computed, so it needs no place in a pool.
uint32_t MaxSequenceLen(const StepLimits& limits, const KvPools& pools) {
  uint64_t tokens = limits.context_len;
  tokens = std::min(tokens, uint64_t{limits.num_blocks[kGlobalGroup]} * limits.block_tokens + 1);
  if (limits.num_blocks[kWindowGroup] < pools.WindowBlocksFor(1)) {
    tokens = std::min(tokens, uint64_t{limits.num_blocks[kWindowGroup]} * limits.block_tokens + 1);
  }
  return static_cast<uint32_t>(tokens);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckLimits(options.limits));
  TANDEM_RETURN_IF_ERROR(CheckPositive("option max_sequences", options.max_sequences));
  TANDEM_RETURN_IF_ERROR(CheckPositive("option max_rows", options.max_rows));
  TANDEM_RETURN_IF_ERROR(CheckPositive("option chunk_rows", options.chunk_rows));
  return std::unique_ptr<Scheduler>(new Scheduler(options));
}

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      pools_(options.limits),
      max_sequence_len_(MaxSequenceLen(options.limits, pools_)) {}

absl::Status Scheduler::Add(SequenceSpec spec) {
  if (sequences_.size() >= uint64_t{options_.max_sequences} + options_.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("the queue is full: %d requests are running or waiting, %d at most",
                        sequences_.size(), options_.max_sequences + options_.max_waiting));
  }
  if (spec.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  if (spec.prompt.size() >= max_sequence_len_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "context_length_exceeded: the prompt has %d tokens and must leave room for one more in "
        "a context of %d",
        spec.prompt.size(), max_sequence_len_));
  }
  const uint64_t id = spec.id;
  auto sequence =
      std::make_unique<Sequence>(std::move(spec), num_arrivals_, pools_, options_.prefix_cache);
  Sequence* const added = sequence.get();
  if (!sequences_.emplace(id, std::move(sequence)).second) {
    return absl::InvalidArgumentError(absl::StrFormat("sequence id %d is in use", id));
  }
  ++num_arrivals_;
  waiting_.push_back(added);
  return absl::OkStatus();
}

void Scheduler::Remove(uint64_t id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence* const sequence = found->second.get();
  std::erase(waiting_, sequence);
  std::erase(running_, sequence);
  sequences_.erase(found);
}

Sequence* Scheduler::Find(uint64_t id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

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

void Scheduler::AdmitWaiting() {
  const uint32_t max_running = std::min({options_.max_sequences, options_.limits.max_sequences,
                                         options_.max_rows, options_.limits.max_rows});
  while (!waiting_.empty() && running_.size() < max_running) {
    Sequence& sequence = *waiting_.front();
    // Set aside while its token is being chosen: its rows are computed with that token.
    if (sequence.num_known < sequence.tokens.size()) return;
    if (!CanAdmit(sequence) && !(ReleaseUnpublished() && CanAdmit(sequence))) return;
    waiting_.pop_front();
    Admit(sequence);
    PlanRows(sequence);
  }
}

void Scheduler::AddDue(const Sequence& sequence, std::array<uint64_t, kNumKvGroups>& due) const {
  const uint32_t all = pools_.BlocksFor(sequence.tokens.size());
  const uint32_t window = std::min(
      all, pools_.WindowBlocksFor(std::min(sequence.num_remaining(), options_.chunk_rows)));
  const uint32_t want[kNumKvGroups] = {all, window};
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    const uint32_t held = sequence.blocks.num_held(group);
    if (want[group] > held) due[group] += want[group] - held;
  }
}

bool Scheduler::AreAvailable(const std::array<uint64_t, kNumKvGroups>& due) const {
  return due[kGlobalGroup] <= pools_.pools[kGlobalGroup].num_available() &&
         due[kWindowGroup] <= pools_.pools[kWindowGroup].num_available();
}

bool Scheduler::CanAdmit(const Sequence& sequence) {
  found_.nodes.clear();
  std::array<uint64_t, kNumKvGroups> due = {};
  for (const Sequence* running : running_) AddDue(*running, due);
  if (!running_.empty() && !AreAvailable(due)) return false;
  if (sequence.use_prefix_cache) {
    pools_.Find(/*scope=*/0, sequence.tokens, sequence.MaxReused(), found_);
  }
  if (running_.empty()) return true;
  AddDue(sequence, due);
  // What others hold is there already, and need not be had.
  const auto num_found = static_cast<uint32_t>(found_.nodes.size());
  due[kGlobalGroup] -= num_found - pools_.NumUnheld(found_, kGlobalGroup);
  due[kWindowGroup] -= num_found - found_.first_window - pools_.NumUnheld(found_, kWindowGroup);
  return AreAvailable(due);
}

void Scheduler::Admit(Sequence& sequence) {
  running_.push_back(&sequence);
  if (found_.nodes.empty()) return;
  sequence.blocks.Share(found_);
  sequence.num_computed = static_cast<uint32_t>(found_.nodes.size()) * pools_.block_tokens;
}

bool Scheduler::ReleaseUnpublished() {
  bool any = false;
  for (Sequence* sequence : running_) any |= sequence->blocks.ReleaseUnpublished();
  return any;
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

void Scheduler::StepDone() {
  TANDEM_CHECK(!under_way_.empty());
  ++num_steps_;
  const uint64_t step_id = under_way_.front()->batch.header.step_id;
  for (const ScheduledRows& rows : under_way_.front()->rows) {
    Sequence* const sequence = Find(rows.sequence);
    if (sequence == nullptr) continue;
    const uint32_t end = rows.first_position + rows.num_rows;
    sequence->prompt_outputs_done = std::max(sequence->prompt_outputs_done, end);
    if (step_id <= sequence->stale_step || step_id == sequence->void_step) continue;
    TANDEM_CHECK(end <= sequence->num_known);
    sequence->blocks.Publish(std::span(sequence->tokens).first(end));
  }
  under_way_.pop_front();
}

void Scheduler::StepRefused() {
  TANDEM_CHECK(!under_way_.empty());
  under_way_.pop_front();
}

void Scheduler::StepFailed() {
  TANDEM_CHECK(under_way_.size() == 1);
  for (const ScheduledRows& rows : under_way_.front()->rows) {
    Sequence* const sequence = Find(rows.sequence);
    if (sequence == nullptr) continue;
    sequence->tokens.resize(sequence->num_known);
    sequence->num_computed = std::min(sequence->num_computed, rows.first_position);
    sequence->next_prompt_output = sequence->prompt_outputs_done;
  }
  under_way_.pop_front();
}

bool Scheduler::Counts(uint64_t step_id, uint64_t id) const {
  const Sequence* const sequence = Find(id);
  return sequence != nullptr && sequence->void_step != step_id;
}

void Scheduler::Append(uint64_t id, uint32_t token, OutputNeeds needs, uint32_t guess) {
  Sequence* const sequence = Find(id);
  TANDEM_CHECK(sequence != nullptr);
  sequence->needs = needs;
  const uint32_t position = sequence->num_known++;
  TANDEM_CHECK(position < max_sequence_len_);
  if (position == sequence->tokens.size()) {
    TANDEM_CHECK(sequence->num_computed == position);
    sequence->tokens.push_back(token);
    return;
  }
  sequence->tokens[position] = token;
  // Whether the step under way took the guess, and it was wrong.
  if (sequence->num_computed <= position) return;
  if (guess == token) {
    ++num_right_guesses_;
    return;
  }
  TANDEM_CHECK(!under_way_.empty());
  ++num_wrong_guesses_;
  sequence->void_step = under_way_.back()->batch.header.step_id;
  sequence->tokens.resize(position + 1);
  sequence->num_computed = position;
}

absl::StatusOr<std::vector<uint64_t>> Scheduler::RecomputeAll(const StepLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CheckLimits(limits));
  under_way_.clear();
  waiting_.clear();
  running_.clear();
  std::vector<uint64_t> misfits;
  for (auto& [id, sequence] : sequences_) {
    sequence->blocks.FreeAll();
    sequence->num_computed = 0;
    sequence->tokens.resize(sequence->num_known);
    sequence->next_prompt_output = sequence->prompt_outputs_done;
    waiting_.push_back(sequence.get());
  }
  std::sort(waiting_.begin(), waiting_.end(),
            [](const Sequence* a, const Sequence* b) { return a->arrival < b->arrival; });
  options_.limits = limits;
  pools_.Reset(limits);
  max_sequence_len_ = MaxSequenceLen(limits, pools_);
  for (const Sequence* sequence : waiting_) {
    if (sequence->tokens.size() >= max_sequence_len_) misfits.push_back(sequence->id);
  }
  for (const uint64_t id : misfits) Remove(id);
  return misfits;
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts{.running = static_cast<uint32_t>(running_.size()),
                         .waiting = static_cast<uint32_t>(waiting_.size()),
                         .tokens_looked_up = num_tokens_looked_up_,
                         .tokens_found = num_tokens_found_,
                         .steps = num_steps_,
                         .preemptions = num_preemptions_,
                         .fed_rows = num_fed_rows_,
                         .wrong_guesses = num_wrong_guesses_,
                         .right_guesses = num_right_guesses_};
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    counts.blocks_total[group] = pools_.pools[group].num_blocks();
    counts.blocks_used[group] = pools_.pools[group].num_used();
    counts.blocks_cached[group] = pools_.pools[group].num_cached();
    counts.blocks_evicted[group] = pools_.num_evicted[group];
  }
  return counts;
}

}  // namespace tandem::gateway
