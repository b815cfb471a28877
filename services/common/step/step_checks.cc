#include "services/common/step/step_checks.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

absl::Status CountWithin(const char* what, uint32_t value, uint32_t low, uint32_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("step: %s is %d, must be in [%d, %d]", what, value, low, high));
}

// Of a vision plan: pictures and nothing else.
absl::Status CheckVisionHeader(const StepHeader& header, const StepLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CountWithin("num_rows", header.num_rows, 0, 0));
  TANDEM_RETURN_IF_ERROR(CountWithin("num_sequences", header.num_sequences, 0, 0));
  TANDEM_RETURN_IF_ERROR(CountWithin("num_outputs", header.num_outputs, 0, 0));
  TANDEM_RETURN_IF_ERROR(CountWithin("want_logits", header.want_logits, 0, 0));
  TANDEM_RETURN_IF_ERROR(CountWithin("table_len", header.table_len, 0, 0));
  TANDEM_RETURN_IF_ERROR(CountWithin("num_draws", header.num_draws, 0, 0));
  TANDEM_RETURN_IF_ERROR(CountWithin("num_pooled", header.num_pooled, 0, 0));
  TANDEM_RETURN_IF_ERROR(CountWithin("num_masks", header.num_masks, 0, 0));
  if (header.after_step != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "step: a step of pictures is fed from step %d, must be from none", header.after_step));
  }
  return CountWithin("num_pictures", header.num_pictures, 1, limits.max_pictures);
}

// `first_seen`: earlier window blocks may be missing.
absl::Status CheckTable(const StepBatch& batch, const StepLimits& limits, uint32_t s, int group,
                        uint32_t first_seen) {
  const SequenceEntry& sequence = batch.sequences[s];
  const uint32_t first = batch.rows[sequence.first_row].position;
  const uint32_t last = first + sequence.num_rows - 1;
  const uint32_t entries = last / limits.block_tokens + 1;
  const uint32_t offset = sequence.table_offset[group];
  if (offset > batch.header.table_len || entries > batch.header.table_len - offset) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step: sequence %d group %d: table [%d, +%d) exceeds table_len %d", s,
                        group, offset, entries, batch.header.table_len));
  }
  const uint32_t first_needed = group == kWindowGroup ? first_seen : 0;
  for (uint32_t i = 0; i < entries; ++i) {
    const uint32_t block = batch.block_table[offset + i];
    if (block < limits.num_blocks[group]) continue;
    if (block == kNoBlock && i < first_needed) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("step: sequence %d group %d: block %d of its table is %d, the pool has %d",
                        s, group, i, block, limits.num_blocks[group]));
  }
  return absl::OkStatus();
}

absl::Status CheckSequences(const StepBatch& batch, const StepLimits& limits) {
  uint32_t next_row = 0;
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceEntry& sequence = batch.sequences[s];
    if (sequence.first_row != next_row || sequence.num_rows == 0 ||
        sequence.num_rows > batch.header.num_rows - next_row) {
      return absl::InvalidArgumentError(
          absl::StrFormat("step: sequence %d has rows [%d, +%d) where row %d of %d was due", s,
                          sequence.first_row, sequence.num_rows, next_row, batch.header.num_rows));
    }
    const uint32_t first_position = batch.rows[next_row].position;
    for (uint32_t i = 0; i < sequence.num_rows; ++i) {
      const RowEntry& row = batch.rows[next_row + i];
      if (row.feed != 0 && (batch.header.after_step == 0 || row.feed > limits.max_outputs)) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "step: row %d takes the guess of output %d of %d, of step %d", next_row + i,
            row.feed - 1, limits.max_outputs, batch.header.after_step));
      }
      if (row.feed == 0 && row.token >= limits.vocab_size) {
        return absl::InvalidArgumentError(
            absl::StrFormat("step: row %d: token %d, the vocabulary has %d", next_row + i,
                            row.token, limits.vocab_size));
      }
      if (row.sequence != s || row.position >= limits.context_len ||
          row.position != uint64_t{first_position} + i) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "step: row %d: sequence %d position %d, expected sequence %d position %d below %d",
            next_row + i, row.sequence, row.position, s, uint64_t{first_position} + i,
            limits.context_len));
      }
    }
    next_row += sequence.num_rows;
  }
  if (next_row != batch.header.num_rows) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step: sequences cover %d of %d rows", next_row, batch.header.num_rows));
  }
  return absl::OkStatus();
}

// NaN compares false and is refused.
absl::Status CheckDraws(const StepBatch& batch) {
  for (uint32_t d = 0; d < batch.draws.size(); ++d) {
    const DrawEntry& draw = batch.draws[d];
    const bool usable = draw.temperature > 0.0f && draw.top_k >= 1 &&
                        draw.top_k <= kMaxCandidates && draw.top_p > 0.0f && draw.top_p <= 1.0f &&
                        draw.min_p >= 0.0f && draw.min_p <= 1.0f && draw.uniform >= 0.0f &&
                        draw.uniform <= 1.0f;
    if (usable) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("step: draw %d: temperature %g, top_k %d, top_p %g, min_p %g, uniform %g",
                        d, draw.temperature, draw.top_k, draw.top_p, draw.min_p, draw.uniform));
  }
  return absl::OkStatus();
}

absl::Status CheckPooled(const StepBatch& batch) {
  for (uint32_t p = 0; p < batch.pooled.size(); ++p) {
    const uint32_t sequence = batch.pooled[p];
    if (sequence < batch.header.num_sequences && (p == 0 || sequence > batch.pooled[p - 1])) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "step: pooled sequence %d is %d: it must be below %d and above the one before it", p,
        sequence, batch.header.num_sequences));
  }
  return absl::OkStatus();
}

// The rows are there, and whole; or the sequence's first rows and the last ones of the picture.
absl::Status CheckPictureRows(const StepBatch& batch, const StepLimits& limits, uint32_t p) {
  const PictureEntry& picture = batch.pictures[p];
  const uint32_t end = picture.first_row + picture.num_rows;
  const uint32_t s = batch.rows[picture.first_row].sequence;
  for (uint32_t r = picture.first_row; r < end; ++r) {
    const RowEntry& row = batch.rows[r];
    if (row.feed == 0 && row.sequence == s) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "step: picture %d: row %d is of sequence %d and takes guess %d, must be of sequence %d and "
        "take none",
        p, r, row.sequence, row.feed, s));
  }
  if (picture.num_rows == limits.picture_rows) return absl::OkStatus();
  if (picture.first_row != batch.sequences[s].first_row) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "step: picture %d: row %d is the first of its last %d of %d rows, must be the first row %d "
        "of sequence %d",
        p, picture.first_row, picture.num_rows, limits.picture_rows, batch.sequences[s].first_row,
        s));
  }
  const uint32_t last = batch.rows[end - 1].position;
  if (last + 1 >= limits.picture_rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("step: picture %d: its last row is at position %d, it must have %d rows", p,
                      last, limits.picture_rows));
}

absl::Status CheckPictures(const StepBatch& batch, const StepLimits& limits) {
  uint64_t next_row = 0;
  for (uint32_t p = 0; p < batch.pictures.size(); ++p) {
    const PictureEntry& picture = batch.pictures[p];
    const uint64_t end = uint64_t{picture.first_row} + picture.num_rows;
    const uint32_t least = limits.vision() ? limits.picture_rows : 1;
    const uint64_t num_rows =
        limits.vision() ? (uint64_t{p} + 1) * limits.picture_rows : batch.header.num_rows;
    if (picture.num_rows < least || picture.num_rows > limits.picture_rows ||
        picture.first_row < next_row || end > num_rows) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "step: picture %d has rows [%d, +%d), must have %d to %d of [%d, %d)", p,
          picture.first_row, picture.num_rows, least, limits.picture_rows, next_row, num_rows));
    }
    next_row = end;
    if (!limits.vision()) TANDEM_RETURN_IF_ERROR(CheckPictureRows(batch, limits, p));
  }
  return absl::OkStatus();
}

// After CheckPictures.
absl::Status CheckTables(const StepBatch& batch, const StepLimits& limits) {
  size_t next_picture = 0;
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceEntry& sequence = batch.sequences[s];
    uint32_t first_seen = FirstWindowBlock(batch.rows[sequence.first_row].position,
                                           limits.sliding_window, limits.block_tokens);
    while (next_picture < batch.pictures.size() &&
           batch.pictures[next_picture].first_row < sequence.first_row) {
      ++next_picture;
    }
    if (next_picture < batch.pictures.size() &&
        batch.pictures[next_picture].first_row == sequence.first_row) {
      const uint32_t first =
          FirstPosition(batch.pictures[next_picture], batch.rows, limits.picture_rows);
      first_seen = std::min(first_seen, first / limits.block_tokens);
    }
    for (int group = 0; group < kNumKvGroups; ++group) {
      TANDEM_RETURN_IF_ERROR(CheckTable(batch, limits, s, group, first_seen));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const StepBatch& batch, const StepLimits& limits) {
  const StepHeader& header = batch.header;
  for (uint32_t o = 0; o < header.num_outputs; ++o) {
    const OutputEntry& output = batch.outputs[o];
    if (output.row >= header.num_rows ||
        (output.target != kNoToken && output.target >= limits.vocab_size)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("step: output %d: row %d of %d, target %d of vocabulary %d", o,
                          output.row, header.num_rows, output.target, limits.vocab_size));
    }
    if (output.draw != kNoDraw && output.draw >= header.num_draws) {
      return absl::InvalidArgumentError(absl::StrFormat("step: output %d: draw %d, the step has %d",
                                                        o, output.draw, header.num_draws));
    }
    if (output.mask != kNoMask && (output.mask >= header.num_masks || output.target != kNoToken)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "step: output %d: mask %d with target %d, the step has %d masks and a masked output no "
          "target",
          o, output.mask, output.target, header.num_masks));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStepHeader(const StepHeader& header, const StepLimits& limits) {
  if (header.magic != kStepMagic) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step: magic is %#x, expected %#x", header.magic, kStepMagic));
  }
  if (limits.vision()) return CheckVisionHeader(header, limits);
  TANDEM_RETURN_IF_ERROR(CountWithin("num_rows", header.num_rows, 1, limits.max_rows));
  TANDEM_RETURN_IF_ERROR(
      CountWithin("num_sequences", header.num_sequences, 1, limits.max_sequences));
  TANDEM_RETURN_IF_ERROR(CountWithin("want_logits", header.want_logits, 0, 1));
  TANDEM_RETURN_IF_ERROR(
      CountWithin("num_outputs", header.num_outputs, 0,
                  header.want_logits != 0 ? limits.max_logit_outputs : limits.max_outputs));
  if (header.num_outputs > 0) {
    TANDEM_RETURN_IF_ERROR(CountWithin("num_candidates", header.num_candidates, 1, kMaxCandidates));
  }
  TANDEM_RETURN_IF_ERROR(CountWithin("num_draws", header.num_draws, 0, limits.max_sequences));
  TANDEM_RETURN_IF_ERROR(CountWithin("num_pooled", header.num_pooled, 0, limits.max_sequences));
  TANDEM_RETURN_IF_ERROR(CountWithin("num_masks", header.num_masks, 0, limits.max_sequences));
  TANDEM_RETURN_IF_ERROR(CountWithin("num_pictures", header.num_pictures, 0, limits.max_pictures));
  return CountWithin("table_len", header.table_len, 1, limits.max_table_len);
}

absl::Status CheckStep(const StepBatch& batch, const StepLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CheckSequences(batch, limits));
  TANDEM_RETURN_IF_ERROR(CheckPictures(batch, limits));
  TANDEM_RETURN_IF_ERROR(CheckTables(batch, limits));
  TANDEM_RETURN_IF_ERROR(CheckOutputs(batch, limits));
  TANDEM_RETURN_IF_ERROR(CheckDraws(batch));
  return CheckPooled(batch);
}

}  // namespace tandem
