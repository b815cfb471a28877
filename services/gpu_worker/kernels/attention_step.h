// This worker's additions to a step, for its attention kernels: how to decode each row, and tiles
// of prompt rows.  shaders/include/attention_step.glsl reads them.
//
//   AttentionRow[bit_ceil(max_rows)] | AttentionTile[MaxTiles(bit_ceil(max_rows), tile_rows)]
//
// A sequence with kLongRows rows or more in the step is long: the rows of a tile read the cache
// together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "services/common/step/step_batch.h"

namespace tandem::gpu {

inline constexpr uint32_t kLongRows = 9;

struct AttentionRow {
  uint32_t position = 0;
  // Rows of its sequence in the step, up to and including this one; 0: not decoded, because the row
  // does not exist or lies in a tile.
  uint32_t fresh = 0;
  uint32_t tables[kNumKvGroups] = {};  // its sequence's, bytes from the step's start
};
static_assert(sizeof(AttentionRow) == 16);

// Up to `tile_rows` rows of one sequence.
struct AttentionTile {
  uint32_t first_row = 0;
  uint32_t num_rows = 0;  // 0: no tile
  uint32_t unused[2] = {};
};
static_assert(sizeof(AttentionTile) == 16);

// Most tiles that a step of `num_rows` rows makes.
constexpr uint32_t MaxTiles(uint32_t num_rows, uint32_t tile_rows) {
  return tile_rows == 0 ? 0 : num_rows / kLongRows + num_rows / tile_rows;
}

struct AttentionStepLayout {
  AttentionStepLayout(uint32_t max_rows, uint32_t rows_a_tile);
  uint32_t tile_rows = 0;  // 0: there are no tiles, every row is decoded
  size_t tiles = 0;        // offset, bytes
  size_t bytes = 0;
};

bool HasLongSequence(const StepBatch& batch);

// Writes the rows and tiles of `batch`, and marks unused entries up to the row bucket (the next
// power of two).  The longest tiles come first.  REQUIRES area.size() == layout.bytes.
void WriteAttentionStep(const StepBatch& batch, const AttentionStepLayout& layout,
                        std::span<std::byte> area);

}  // namespace tandem::gpu
