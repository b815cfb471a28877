#include "services/npu_worker/operators/step_runs.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {
namespace {

// Adds a sequence's runs.  `picture`: the first that is not of an earlier sequence; moved past this
// one's.
void AddRuns(const StepBatch& step, const SequenceEntry& sequence, uint32_t picture_rows,
             std::span<const PictureEntry>::iterator& picture, std::vector<AttentionRun>& runs) {
  const uint32_t end = sequence.first_row + sequence.num_rows;
  uint32_t row = sequence.first_row;
  const auto add = [&](uint32_t run_end, uint32_t picture_first) {
    if (run_end == row) return;
    runs.push_back({.first_row = row,
                    .num_rows = run_end - row,
                    .first_position = step.rows[row].position,
                    .picture_first = picture_first,
                    .extents = {}});
    row = run_end;
  };
  for (; picture != step.pictures.end() && picture->first_row < end; ++picture) {
    add(picture->first_row, kNoPictureRows);
    add(picture->first_row + picture->num_rows, FirstPosition(*picture, step.rows, picture_rows));
  }
  add(end, kNoPictureRows);
}

uint32_t FirstSeenBy(const AttentionRun& run, uint32_t window) {
  const uint32_t first =
      window == 0 || run.first_position < window ? 0 : run.first_position + 1 - window;
  return std::min(first, run.picture_first);
}

}  // namespace

absl::Status StepRuns::Set(const StepBatch& step, const Options& options) {
  runs_.clear();
  extents_.clear();
  extents_of_run_.clear();
  auto picture = step.pictures.begin();
  for (const SequenceEntry& sequence : step.sequences) {
    const size_t first_run = runs_.size();
    AddRuns(step, sequence, options.picture_rows, picture, runs_);
    uint32_t first_seen = ~0u;
    for (size_t i = first_run; i < runs_.size(); ++i) {
      first_seen = std::min(first_seen, FirstSeenBy(runs_[i], options.window));
    }
    const size_t first_extent = extents_.size();
    TANDEM_RETURN_IF_ERROR(AddExtents(step, sequence, first_seen, options));
    extents_of_run_.resize(runs_.size(), {first_extent, extents_.size()});
  }
  // Only now do the extents stay where they are.
  for (size_t i = 0; i < runs_.size(); ++i) {
    const auto [first, end] = extents_of_run_[i];
    runs_[i].extents = std::span(extents_).subspan(first, end - first);
  }
  return absl::OkStatus();
}

absl::Status StepRuns::AddExtents(const StepBatch& step, const SequenceEntry& sequence,
                                  uint32_t first_seen, const Options& options) {
  const uint32_t block_tokens = options.block_tokens;
  const uint32_t last = step.rows[sequence.first_row + sequence.num_rows - 1].position;
  const uint32_t offset = sequence.table_offset[options.group];
  const size_t first_extent = extents_.size();
  for (uint32_t index = first_seen / block_tokens; index <= last / block_tokens; ++index) {
    const uint64_t at = uint64_t{offset} + index;
    const uint32_t block = at < step.block_table.size() ? step.block_table[at] : kNoBlock;
    if (block >= options.num_blocks) {
      return absl::InvalidArgumentError(
          absl::StrFormat("positions from %d on lie in block %d, the KV group has %d",
                          index * block_tokens, block, options.num_blocks));
    }
    const uint32_t slot = block * block_tokens;
    if (extents_.size() > first_extent &&
        extents_.back().first_slot + extents_.back().num_positions == slot) {
      extents_.back().num_positions += block_tokens;
    } else {
      extents_.push_back({index * block_tokens, block_tokens, slot});
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::npu
