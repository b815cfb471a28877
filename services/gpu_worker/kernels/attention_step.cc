#include "services/gpu_worker/kernels/attention_step.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "services/common/base/check.h"

namespace tandem::gpu {

AttentionStepLayout::AttentionStepLayout(uint32_t max_rows, uint32_t rows_a_tile)
    : tile_rows(rows_a_tile) {
  const uint32_t rows = std::bit_ceil(max_rows);
  tiles = rows * sizeof(AttentionRow);
  bytes = tiles + MaxTiles(rows, tile_rows) * sizeof(AttentionTile);
}

bool HasLongSequence(const StepBatch& batch) {
  return std::any_of(batch.sequences.begin(), batch.sequences.end(),
                     [](const SequenceEntry& s) { return s.num_rows >= kLongRows; });
}

void WriteAttentionStep(const StepBatch& batch, const AttentionStepLayout& layout,
                        std::span<std::byte> area) {
  TANDEM_CHECK(area.size() == layout.bytes);
  const auto tables = static_cast<uint32_t>(BlockTableOffset(batch.header));
  std::byte* to_row = area.data();
  std::byte* to_tile = area.data() + layout.tiles;
  const auto put = [](std::byte*& to, const auto& entry) {
    std::memcpy(to, &entry, sizeof(entry));
    to += sizeof(entry);
  };
  for (const SequenceEntry& sequence : batch.sequences) {
    const bool tiled = layout.tile_rows > 0 && sequence.num_rows >= kLongRows;
    for (uint32_t i = 0; i < sequence.num_rows; ++i) {
      AttentionRow row{.position = batch.rows[sequence.first_row + i].position,
                       .fresh = tiled ? 0 : i + 1};
      for (int group = 0; group < kNumKvGroups; ++group) {
        row.tables[group] = tables + sequence.table_offset[group] * 4;
      }
      put(to_row, row);
    }
    if (!tiled) continue;
    // The last tile of a sequence sees the most.
    for (uint32_t end = sequence.num_rows; end > 0;) {
      const uint32_t first = (end - 1) / layout.tile_rows * layout.tile_rows;
      put(to_tile, AttentionTile{sequence.first_row + first, end - first, {}});
      end = first;
    }
  }
  const uint32_t bucket = std::bit_ceil(batch.header.num_rows);
  for (uint32_t i = batch.header.num_rows; i < bucket; ++i) put(to_row, AttentionRow{});
  std::byte* const tiles_end =
      area.data() + layout.tiles + MaxTiles(bucket, layout.tile_rows) * sizeof(AttentionTile);
  TANDEM_CHECK(to_tile <= tiles_end);
  std::memset(to_tile, 0, static_cast<size_t>(tiles_end - to_tile));
}

}  // namespace tandem::gpu
