#include "services/gpu_worker/kernels/attention_step.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "services/common/base/check.h"

namespace tandem::gpu {

AttentionStepLayout::AttentionStepLayout(const StepLimits& limits, const TileRules& tile_rules)
    : rules(tile_rules), max_pictures(limits.max_pictures), picture_rows(limits.picture_rows) {
  const uint32_t rows = std::bit_ceil(limits.max_rows);
  tiles = rows * sizeof(AttentionRow);
  bytes = tiles + MaxTiles(rows, rules.tile_rows, max_pictures) * sizeof(AttentionTile);
}

Sequences SequencesOf(const StepBatch& batch, const TileRules& rules) {
  uint32_t most = 0;
  for (const SequenceEntry& sequence : batch.sequences) most = std::max(most, sequence.num_rows);
  if (!batch.pictures.empty() || most >= kLongRows) return Sequences::kLong;
  const bool any_long = most >= LongRows(batch.header.num_rows, rules.chain_rows);
  return any_long ? Sequences::kChains : Sequences::kShort;
}

namespace {

// Calls put(first, end) for tiles of the rows [first, end), the last first: it sees the most.
template <typename Put>
void CutTiles(uint32_t first, uint32_t end, uint32_t tile_rows, const Put& put) {
  while (end > first) {
    const uint32_t begin = first + (end - first - 1) / tile_rows * tile_rows;
    put(begin, end);
    end = begin;
  }
}

}  // namespace

void WriteAttentionStep(const StepBatch& batch, const AttentionStepLayout& layout,
                        std::span<std::byte> area) {
  TANDEM_CHECK(area.size() == layout.bytes);
  const auto tables = static_cast<uint32_t>(BlockTableOffset(batch.header));
  const TileRules& rules = layout.rules;
  const uint32_t long_rows = LongRows(batch.header.num_rows, rules.chain_rows);
  const bool decodes_long =
      batch.header.num_rows <= rules.decoded_rows && SequencesOf(batch, rules) == Sequences::kLong;
  std::byte* to_row = area.data();
  std::byte* to_tile = area.data() + layout.tiles;
  const auto put = [](std::byte*& to, const auto& entry) {
    std::memcpy(to, &entry, sizeof(entry));
    to += sizeof(entry);
  };
  auto picture = batch.pictures.begin();
  for (const SequenceEntry& sequence : batch.sequences) {
    const uint32_t sequence_end = sequence.first_row + sequence.num_rows;
    const auto first_picture = picture;
    while (picture != batch.pictures.end() && picture->first_row < sequence_end) ++picture;
    const bool is_long = sequence.num_rows >= long_rows && !decodes_long;
    const bool tiled = rules.tile_rows > 0 && (is_long || picture != first_picture);
    for (uint32_t i = 0; i < sequence.num_rows; ++i) {
      AttentionRow row{.position = batch.rows[sequence.first_row + i].position,
                       .fresh = tiled ? 0 : i + 1};
      for (int group = 0; group < kNumKvGroups; ++group) {
        row.tables[group] = tables + sequence.table_offset[group] * 4;
      }
      put(to_row, row);
    }
    if (!tiled) continue;
    const auto put_text = [&](uint32_t first, uint32_t end) {
      put(to_tile, AttentionTile{.first_row = first, .num_rows = end - first});
    };
    uint32_t end = sequence_end;
    for (auto p = picture; p != first_picture;) {
      --p;
      const uint32_t picture_end = p->first_row + p->num_rows;
      CutTiles(picture_end, end, rules.tile_rows, put_text);
      const uint32_t first_position = FirstPosition(*p, batch.rows, layout.picture_rows);
      const uint32_t last_position = batch.rows[picture_end - 1].position;
      CutTiles(p->first_row, picture_end, rules.tile_rows, [&](uint32_t first, uint32_t tile_end) {
        put(to_tile, AttentionTile{first, tile_end - first, first_position, last_position});
      });
      end = p->first_row;
    }
    CutTiles(sequence.first_row, end, rules.tile_rows, put_text);
  }
  const uint32_t bucket = std::bit_ceil(batch.header.num_rows);
  for (uint32_t i = batch.header.num_rows; i < bucket; ++i) put(to_row, AttentionRow{});
  std::byte* const tiles_end =
      area.data() + layout.tiles +
      MaxTiles(bucket, rules.tile_rows, layout.max_pictures) * sizeof(AttentionTile);
  TANDEM_CHECK(to_tile <= tiles_end);
  std::memset(to_tile, 0, static_cast<size_t>(tiles_end - to_tile));
}

}  // namespace tandem::gpu
