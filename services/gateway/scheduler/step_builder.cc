#include "services/gateway/scheduler/step_builder.h"

#include <algorithm>

namespace tandem::gateway {

ScheduledStep& StepBuilder::Build(std::span<const PlannedRows> plan, uint64_t step_id,
                                  uint64_t after_step, uint32_t block_tokens) {
  rows_.clear();
  sequences_.clear();
  outputs_.clear();
  table_.clear();
  draws_.clear();
  pooled_.clear();
  pictures_.clear();
  scheduled_rows_.clear();
  scheduled_outputs_.clear();
  scheduled_pictures_.clear();
  header_ = StepHeader{.step_id = step_id, .num_candidates = 1};
  for (const PlannedRows& planned : plan) {
    AddSequence(*planned.sequence, planned.num_rows, after_step, block_tokens);
  }
  header_.num_rows = static_cast<uint32_t>(rows_.size());
  header_.num_sequences = static_cast<uint32_t>(sequences_.size());
  header_.num_outputs = static_cast<uint32_t>(outputs_.size());
  header_.table_len = static_cast<uint32_t>(table_.size());
  header_.num_draws = static_cast<uint32_t>(draws_.size());
  header_.num_pooled = static_cast<uint32_t>(pooled_.size());
  header_.num_pictures = static_cast<uint32_t>(pictures_.size());
  step_.batch = {header_, rows_, sequences_, outputs_, table_, draws_, pooled_, pictures_};
  step_.rows = scheduled_rows_;
  step_.outputs = scheduled_outputs_;
  step_.pictures = scheduled_pictures_;
  return step_;
}

void StepBuilder::AddSequence(const Sequence& sequence, uint32_t num_rows, uint64_t after_step,
                              uint32_t block_tokens) {
  const uint32_t index = static_cast<uint32_t>(sequences_.size());
  const uint32_t first_row = static_cast<uint32_t>(rows_.size());
  const uint32_t first_position = sequence.num_computed;
  SequenceEntry entry{.first_row = first_row, .num_rows = num_rows};
  // Rejected guesses may have left blocks for later rows.
  const uint32_t num_entries = (first_position + num_rows - 1) / block_tokens + 1;
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    const std::span<const uint32_t> table = sequence.blocks.table(group).first(num_entries);
    entry.table_offset[group] = static_cast<uint32_t>(table_.size());
    table_.insert(table_.end(), table.begin(), table.end());
  }
  if (sequence.pooled) pooled_.push_back(index);
  sequences_.push_back(entry);
  scheduled_rows_.push_back({sequence.id, first_position, num_rows, sequence.num_drafted()});
  for (uint32_t i = 0; i < num_rows; ++i) {
    const uint32_t position = first_position + i;
    RowEntry& row = rows_.emplace_back(RowEntry{.position = position, .sequence = index});
    if (sequence.KindOf(position) == RowKind::kFed) {
      row.feed = sequence.fed_output + 1;
      header_.after_step = after_step;
    } else {
      row.token = sequence.tokens[position];
    }
    const bool sample = sequence.IsSampled(position);
    if (sample || sequence.HasPromptOutput(position)) {
      AddOutput(sequence, first_row + i, position, sample);
    }
  }
  AddPictures(sequence, first_row, num_rows);
}

void StepBuilder::AddPictures(const Sequence& sequence, uint32_t first_row, uint32_t num_rows) {
  const uint32_t first_position = sequence.num_computed;
  for (const PictureSpan& span : sequence.pictures) {
    if (span.end() <= first_position || span.first >= first_position + num_rows) continue;
    const uint32_t first = std::max(span.first, first_position);
    const uint32_t row = first_row + first - first_position;
    const uint32_t count = span.end() - first;
    for (uint32_t i = 0; i < count; ++i) rows_[row + i].token = 0;
    const std::span<const float> soft_tokens = span.picture->soft_tokens;
    pictures_.push_back({row, count});
    scheduled_pictures_.push_back(
        {row, soft_tokens.last(soft_tokens.size() / span.num_rows * count)});
  }
}

void StepBuilder::AddOutput(const Sequence& sequence, uint32_t row, uint32_t position,
                            bool sample) {
  OutputEntry output{.row = row, .target = sample ? kNoToken : sequence.tokens[position + 1]};
  // The outcome of a step with drafted rows is waited for: no row is fed from it.
  const bool feeds = sample && sequence.num_drafted() == 0;
  if (feeds && sequence.guess.has_value() && !sequence.guess->greedy()) {
    output.draw = static_cast<uint32_t>(draws_.size());
    draws_.push_back(sequence.guess->At(position + 1 - sequence.prompt_len));
  }
  if (sample && sequence.constrained) output.mask = header_.num_masks++;
  outputs_.push_back(output);
  const RowKind kind = sequence.KindOf(position);
  scheduled_outputs_.push_back(
      {sequence.id, position, sample, kind == RowKind::kDraft, kind == RowKind::kFed});
  header_.num_candidates = std::max(header_.num_candidates, sequence.needs.num_candidates);
  if (sample && sequence.needs.logits) header_.want_logits = 1;
}

}  // namespace tandem::gateway
