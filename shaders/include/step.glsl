// The step as it lies in memory: services/common/worker/step_batch.h.
#ifndef TANDEM_STEP_GLSL
#define TANDEM_STEP_GLSL
#include "memory.glsl"

const uint kNoToken = 0xFFFFFFFFu;

// Offsets within StepHeader, bytes.
const uint kNumRowsOffset = 4;
const uint kNumSequencesOffset = 8;
const uint kNumOutputsOffset = 12;
const uint kNumCandidatesOffset = 24;

uint num_rows(uint64_t step) { return load_uint(step + kNumRowsOffset); }
uint num_outputs(uint64_t step) { return load_uint(step + kNumOutputsOffset); }

uint64_t row_entry(uint64_t step, uint row) { return step + 64 + uint64_t(row) * 16; }
uint row_token(uint64_t step, uint row) { return load_uint(row_entry(step, row)); }
uint row_position(uint64_t step, uint row) { return load_uint(row_entry(step, row) + 4); }

// Address of the block table of `row`'s sequence in a KvGroup.
uint64_t row_block_table(uint64_t step, uint row, uint group) {
  uint rows = num_rows(step);
  uint sequences = load_uint(step + kNumSequencesOffset);
  uint outputs = num_outputs(step);
  uint sequence = load_uint(row_entry(step, row) + 8);
  uint64_t entry = step + 64 + uint64_t(rows + sequence) * 16;
  uint table_offset = load_uint(entry + 8 + 4 * group);
  return step + 64 + uint64_t(rows + sequences + outputs) * 16 + uint64_t(table_offset) * 4;
}

uint64_t output_entry(uint64_t step, uint index) {
  return step + 64 + uint64_t(num_rows(step) + load_uint(step + kNumSequencesOffset) + index) * 16;
}
uint output_row(uint64_t step, uint index) { return load_uint(output_entry(step, index)); }
uint output_target(uint64_t step, uint index) { return load_uint(output_entry(step, index) + 4); }
#endif
