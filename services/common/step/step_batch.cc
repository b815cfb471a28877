#include "services/common/step/step_batch.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

size_t BytesFor(uint64_t rows, uint64_t sequences, uint64_t outputs, uint64_t table_len,
                uint64_t draws, uint64_t pooled, uint64_t pictures) {
  return sizeof(StepHeader) + rows * sizeof(RowEntry) + sequences * sizeof(SequenceEntry) +
         outputs * sizeof(OutputEntry) + table_len * sizeof(uint32_t) + draws * sizeof(DrawEntry) +
         pooled * sizeof(uint32_t) + pictures * sizeof(PictureEntry);
}

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

absl::Status CheckHeader(const StepHeader& header, const StepLimits& limits) {
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

absl::Status CheckTable(const StepBatch& batch, const StepLimits& limits, uint32_t s, int group) {
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
  const uint32_t first_needed =
      group == kWindowGroup ? FirstWindowBlock(first, limits.sliding_window, limits.block_tokens)
                            : 0;
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
    for (int group = 0; group < kNumKvGroups; ++group) {
      TANDEM_RETURN_IF_ERROR(CheckTable(batch, limits, s, group));
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

absl::Status CheckPictures(const StepBatch& batch, const StepLimits& limits) {
  uint64_t next_row = 0;
  for (uint32_t p = 0; p < batch.pictures.size(); ++p) {
    const PictureEntry& picture = batch.pictures[p];
    const uint64_t end = uint64_t{picture.first_row} + picture.num_rows;
    const uint64_t num_rows =
        limits.vision() ? (uint64_t{p} + 1) * limits.picture_rows : batch.header.num_rows;
    if (picture.num_rows != limits.picture_rows || picture.first_row < next_row || end > num_rows) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "step: picture %d has rows [%d, +%d), must have %d of [%d, %d)", p, picture.first_row,
          picture.num_rows, limits.picture_rows, next_row, num_rows));
    }
    next_row = end;
    if (limits.vision()) continue;
    for (uint32_t r = picture.first_row; r < end; ++r) {
      const RowEntry& row = batch.rows[r];
      if (row.feed == 0 && row.sequence == batch.rows[picture.first_row].sequence) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "step: picture %d: row %d is of sequence %d and takes guess %d, must be of sequence %d "
          "and take none",
          p, r, row.sequence, row.feed, batch.rows[picture.first_row].sequence));
    }
  }
  return absl::OkStatus();
}

StepBatch View(const StepHeader& header, const std::byte* data) {
  StepBatch batch;
  batch.header = header;
  const std::byte* p = data + sizeof(StepHeader);
  batch.rows = {reinterpret_cast<const RowEntry*>(p), header.num_rows};
  p += header.num_rows * sizeof(RowEntry);
  batch.sequences = {reinterpret_cast<const SequenceEntry*>(p), header.num_sequences};
  p += header.num_sequences * sizeof(SequenceEntry);
  batch.outputs = {reinterpret_cast<const OutputEntry*>(p), header.num_outputs};
  p += header.num_outputs * sizeof(OutputEntry);
  batch.block_table = {reinterpret_cast<const uint32_t*>(p), header.table_len};
  p += header.table_len * sizeof(uint32_t);
  batch.draws = {reinterpret_cast<const DrawEntry*>(p), header.num_draws};
  p += header.num_draws * sizeof(DrawEntry);
  batch.pooled = {reinterpret_cast<const uint32_t*>(p), header.num_pooled};
  p += header.num_pooled * sizeof(uint32_t);
  batch.pictures = {reinterpret_cast<const PictureEntry*>(p), header.num_pictures};
  return batch;
}

}  // namespace

StepLimits VisionLimits(uint32_t max_pictures, uint32_t picture_rows) {
  return {.max_pictures = max_pictures, .picture_rows = picture_rows};
}

size_t StepAreaBytes(const StepLimits& limits) {
  return BytesFor(limits.max_rows, limits.max_sequences, limits.max_outputs, limits.max_table_len,
                  limits.max_sequences, limits.max_sequences, limits.max_pictures);
}

size_t StepBytes(const StepHeader& header) {
  return BytesFor(header.num_rows, header.num_sequences, header.num_outputs, header.table_len,
                  header.num_draws, header.num_pooled, header.num_pictures);
}

size_t BlockTableOffset(const StepHeader& header) {
  return BytesFor(header.num_rows, header.num_sequences, header.num_outputs, 0, 0, 0, 0);
}

absl::StatusOr<StepBatch> ParseStep(std::span<const std::byte> area, const StepLimits& limits,
                                    std::vector<std::byte>& storage) {
  if (area.size() < sizeof(StepHeader)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step: area of %d bytes is shorter than its header", area.size()));
  }
  StepHeader header;
  std::memcpy(&header, area.data(), sizeof(header));
  TANDEM_RETURN_IF_ERROR(CheckHeader(header, limits));
  const size_t bytes = StepBytes(header);
  if (bytes > area.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step: %d bytes in an area of %d", bytes, area.size()));
  }
  if (storage.size() < bytes) storage.resize(bytes);
  std::memcpy(storage.data(), area.data(), bytes);
  const StepBatch batch = View(header, storage.data());
  TANDEM_RETURN_IF_ERROR(CheckSequences(batch, limits));
  TANDEM_RETURN_IF_ERROR(CheckPictures(batch, limits));
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
  TANDEM_RETURN_IF_ERROR(CheckDraws(batch));
  TANDEM_RETURN_IF_ERROR(CheckPooled(batch));
  return batch;
}

size_t WriteStep(const StepBatch& batch, std::span<std::byte> area) {
  const size_t bytes = StepBytes(batch.header);
  TANDEM_CHECK(bytes <= area.size());
  TANDEM_CHECK(batch.rows.size() == batch.header.num_rows);
  TANDEM_CHECK(batch.sequences.size() == batch.header.num_sequences);
  TANDEM_CHECK(batch.outputs.size() == batch.header.num_outputs);
  TANDEM_CHECK(batch.block_table.size() == batch.header.table_len);
  TANDEM_CHECK(batch.draws.size() == batch.header.num_draws);
  TANDEM_CHECK(batch.pooled.size() == batch.header.num_pooled);
  TANDEM_CHECK(batch.pictures.size() == batch.header.num_pictures);
  std::byte* p = area.data();
  const auto put = [&p](const void* data, size_t n) {
    if (n > 0) std::memcpy(p, data, n);
    p += n;
  };
  put(&batch.header, sizeof(StepHeader));
  put(batch.rows.data(), batch.rows.size_bytes());
  put(batch.sequences.data(), batch.sequences.size_bytes());
  put(batch.outputs.data(), batch.outputs.size_bytes());
  put(batch.block_table.data(), batch.block_table.size_bytes());
  put(batch.draws.data(), batch.draws.size_bytes());
  put(batch.pooled.data(), batch.pooled.size_bytes());
  put(batch.pictures.data(), batch.pictures.size_bytes());
  return bytes;
}

}  // namespace tandem
