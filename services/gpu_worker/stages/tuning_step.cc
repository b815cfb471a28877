#include "services/gpu_worker/stages/tuning_step.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "services/gpu_worker/kernels/attention_step.h"

namespace tandem::gpu {
namespace {

bool Attends(TuningWork work) { return work == TuningWork::kDecode || work == TuningWork::kPrompt; }

uint32_t NumSequences(const TuningCase& of) { return of.work == TuningWork::kDecode ? of.rows : 1; }

// Entries of a sequence's table in each group.
uint32_t TableLen(const TuningCase& of, const StepLimits& limits) {
  const uint32_t positions = of.depth + of.rows / NumSequences(of);
  return (positions + limits.block_tokens - 1) / limits.block_tokens;
}

// A step's parts, for StepBatch to point to.
struct TuningStep {
  StepHeader header;
  std::vector<RowEntry> rows;
  std::vector<SequenceEntry> sequences;
  std::vector<OutputEntry> outputs;
  std::vector<uint32_t> table;

  StepBatch batch() const { return {header, rows, sequences, outputs, table, {}}; }
};

TuningStep MakeStep(const TuningCase& of, const StepLimits& limits) {
  TuningStep step;
  if (of.work == TuningWork::kHead) {
    step.rows = {RowEntry{}};
    step.sequences = {SequenceEntry{.first_row = 0, .num_rows = 1}};
    step.outputs.resize(std::min(of.rows, limits.max_outputs));
    step.table = {0, 0};
  } else {
    const uint32_t num_sequences = NumSequences(of), num_rows = of.rows / num_sequences;
    const uint32_t table_len = TableLen(of, limits);
    for (uint32_t s = 0; s < num_sequences; ++s) {
      SequenceEntry& sequence = step.sequences.emplace_back();
      sequence = {.first_row = s * num_rows, .num_rows = num_rows};
      for (uint32_t r = 0; r < num_rows; ++r) {
        step.rows.push_back({.position = of.depth + r, .sequence = s});
      }
      // Sequences share blocks where there are too few: each still reads as much.
      for (int group = 0; group < kNumKvGroups; ++group) {
        sequence.table_offset[group] = static_cast<uint32_t>(step.table.size());
        for (uint32_t i = 0; i < table_len; ++i) {
          step.table.push_back((s * table_len + i) % limits.num_blocks[group]);
        }
      }
    }
  }
  step.header = {.num_rows = static_cast<uint32_t>(step.rows.size()),
                 .num_sequences = static_cast<uint32_t>(step.sequences.size()),
                 .num_outputs = static_cast<uint32_t>(step.outputs.size()),
                 .num_candidates = 1,
                 .table_len = static_cast<uint32_t>(step.table.size())};
  return step;
}

}  // namespace

bool Fits(const TuningCase& of, const StepLimits& limits) {
  if (of.work == TuningWork::kHead) return of.rows <= std::bit_ceil(limits.max_outputs);
  if (!Attends(of.work)) return of.rows <= std::bit_ceil(limits.max_rows);
  return of.rows <= limits.max_rows && NumSequences(of) <= limits.max_sequences &&
         of.depth + of.rows / NumSequences(of) <= limits.context_len &&
         uint64_t{NumSequences(of)} * kNumKvGroups * TableLen(of, limits) <= limits.max_table_len;
}

void WriteTuningStep(const TuningCase& of, const StepLimits& limits, const TileRules& rules,
                     const LaneBuffers& lane) {
  const std::span<std::byte> area = lane.step.mapped();
  const std::span<std::byte> attention = lane.attention_step.mapped();
  std::ranges::fill(area, std::byte{0});  // rows that are not there see nothing
  std::ranges::fill(attention, std::byte{0});
  if (of.work == TuningWork::kLayers) {
    const StepHeader header{.num_rows = std::min(of.rows, limits.max_rows)};
    std::memcpy(area.data(), &header, sizeof(header));
    return;
  }
  const TuningStep step = MakeStep(of, limits);
  WriteStep(step.batch(), area);
  if (Attends(of.work) && !attention.empty()) {  // else rows are found in the step
    WriteAttentionStep(step.batch(), AttentionStepLayout(limits, rules), attention);
  }
}

}  // namespace tandem::gpu
