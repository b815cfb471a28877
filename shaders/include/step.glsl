// The step as it lies in memory: services/common/step/step_batch.h.
#ifndef TANDEM_STEP_GLSL
#define TANDEM_STEP_GLSL
#include "memory.glsl"

uint num_rows(uint64_t step) { return load_uint(step + kNumRowsOffset); }
uint num_outputs(uint64_t step) { return load_uint(step + kNumOutputsOffset); }

uint num_pooled(uint64_t step) { return load_uint(step + kNumPooledOffset); }

uint64_t row_entry(uint64_t step, uint row) { return step + kHeaderBytes + uint64_t(row) * kEntryBytes; }
// `guesses`: of the outputs of the step before.
uint row_token(uint64_t step, uint row, uint64_t guesses) {
  uint feed = load_uint(row_entry(step, row) + kRowFeedOffset);
  return load_uint(feed == 0 ? row_entry(step, row) : guesses + uint64_t(feed - 1) * 4);
}
uint row_position(uint64_t step, uint row) {
  return load_uint(row_entry(step, row) + kRowPositionOffset);
}

uint64_t sequence_entry(uint64_t step, uint sequence) {
  return step + kHeaderBytes + uint64_t(num_rows(step) + sequence) * kEntryBytes;
}

// Address of the block table of `row`'s sequence in a KvGroup.
uint64_t row_block_table(uint64_t step, uint row, uint group) {
  uint rows = num_rows(step);
  uint sequences = load_uint(step + kNumSequencesOffset);
  uint outputs = num_outputs(step);
  uint sequence = load_uint(row_entry(step, row) + kRowSequenceOffset);
  uint table_offset = load_uint(sequence_entry(step, sequence) + kTablesOffset + 4 * group);
  return step + kHeaderBytes + uint64_t(rows + sequences + outputs) * kEntryBytes +
         uint64_t(table_offset) * 4;
}

uint64_t output_entry(uint64_t step, uint index) {
  uint before = num_rows(step) + load_uint(step + kNumSequencesOffset);
  return step + kHeaderBytes + uint64_t(before + index) * kEntryBytes;
}
uint output_row(uint64_t step, uint index) { return load_uint(output_entry(step, index)); }
uint output_target(uint64_t step, uint index) {
  return load_uint(output_entry(step, index) + kTargetOffset);
}
// Index of the output's mask; kNoMask: every token is allowed.
uint output_mask(uint64_t step, uint index) {
  return load_uint(output_entry(step, index) + kMaskOffset);
}
// Address of the DrawEntry that guesses the output's token; 0: there is none.
uint64_t output_draw(uint64_t step, uint index) {
  uint draw = load_uint(output_entry(step, index) + kDrawOffset);
  if (draw == kNoDraw) return 0;
  uint64_t table = output_entry(step, num_outputs(step));
  return table + uint64_t(load_uint(step + kTableLenOffset)) * 4 + uint64_t(draw) * kDrawBytes;
}

// Address of the indices of the pooled sequences.
uint64_t pooled_entries(uint64_t step) {
  uint64_t draws = output_entry(step, num_outputs(step)) +
                   uint64_t(load_uint(step + kTableLenOffset)) * 4;
  return draws + uint64_t(load_uint(step + kNumDrawsOffset)) * kDrawBytes;
}
// The index of the step's p-th pooled sequence.
uint pooled_sequence(uint64_t step, uint p) { return load_uint(pooled_entries(step) + p * 4); }

// Past the last row of the picture that `row` is of; 0: it is of none.
uint picture_end(uint64_t step, uint row) {
  uint pictures = load_uint(step + kNumPicturesOffset);
  uint64_t entries = pooled_entries(step) + uint64_t(num_pooled(step)) * 4;
  for (uint p = 0; p < pictures; ++p) {
    uint first = load_uint(entries + p * kPictureBytes);
    uint rows = load_uint(entries + p * kPictureBytes + 4);
    if (row - first < rows) return first + rows;  // before the first wraps round
  }
  return 0;
}
#endif
