// Scheduler: sequences that go on in another scheduler, and their KV (kv_imports.h).
#include <algorithm>
#include <utility>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {

SequenceProgress Scheduler::Take(uint64_t id) {
  const Sequence* const sequence = Find(id);
  TANDEM_CHECK(sequence != nullptr && !sequence->awaits_decision);
  const std::span<const uint32_t> known = std::span(sequence->tokens).first(sequence->num_known);
  const std::span<const uint32_t> answer = known.subspan(sequence->prompt_len);
  SequenceProgress progress{
      .answer = {answer.begin(), answer.end()},
      .num_computed =
          std::max(sequence->lost_until, std::min(sequence->num_computed, sequence->num_known)),
      .prompt_outputs_done = sequence->prompt_outputs_done,
      .needs = sequence->needs};
  Remove(id);
  return progress;
}

absl::Status Scheduler::Adopt(SequenceSpec spec, const SequenceProgress& progress) {
  TANDEM_RETURN_IF_ERROR(CheckFits(spec, spec.prompt.size() + progress.answer.size()));
  const std::optional<uint64_t> import_began = imports_.ArrivalOf(spec.id);
  Sequence& sequence =
      Enter(std::move(spec), import_began.has_value() ? *import_began : num_arrivals_++);
  sequence.tokens.insert(sequence.tokens.end(), progress.answer.begin(), progress.answer.end());
  sequence.num_known = static_cast<uint32_t>(sequence.tokens.size());
  sequence.lost_until = progress.num_computed;
  sequence.prompt_outputs_done =
      std::max(sequence.prompt_outputs_done, progress.prompt_outputs_done);
  sequence.next_prompt_output = sequence.prompt_outputs_done;
  if (progress.needs.has_value()) sequence.needs = *progress.needs;
  Wait(sequence);
  return absl::OkStatus();
}

bool Scheduler::CanTake(uint64_t id) const {
  const Sequence* const sequence = Find(id);
  return sequence != nullptr && !sequence->awaits_token() &&
         std::ranges::none_of(under_way_, [id](const ScheduledStep* step) {
           return std::ranges::find(step->rows, id, &ScheduledRows::sequence) != step->rows.end();
         });
}

void Scheduler::AwaitTake(uint64_t id, bool awaits) {
  if (Sequence* const sequence = Find(id)) sequence->awaits_take = awaits;
}

void Scheduler::KeepWindow(uint64_t id, uint32_t position) {
  if (Sequence* const sequence = Find(id)) sequence->keep_window = position;
}

PublishedPrefix Scheduler::Published(uint64_t id) const {
  const Sequence* const sequence = Find(id);
  if (sequence == nullptr) return {};
  const uint32_t count = sequence->blocks.num_published();
  PublishedPrefix found{.tokens = std::span(sequence->tokens).first(sequence->num_known),
                        .forgotten = sequence->blocks.forgotten()};
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    found.blocks[group] = sequence->blocks.table(group).first(count);
  }
  return found;
}

uint32_t Scheduler::BeginImport(uint64_t id, const std::string& prefix_scope,
                                std::vector<uint32_t> tokens, uint32_t first_window) {
  return imports_.Begin(id, scopes_.Of(prefix_scope), std::move(tokens), first_window,
                        num_arrivals_++);
}

}  // namespace tandem::gateway
