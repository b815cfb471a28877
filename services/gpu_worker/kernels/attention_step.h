// This worker's additions to a step, for its attention kernels: how to decode each row, and tiles
// of prompt rows.  shaders/include/attention_step.glsl reads them.
//
//   AttentionRow[bit_ceil(max_rows)] | AttentionTile[MaxTiles(bit_ceil(max_rows), ...)]
//
// A sequence with LongRows rows or more in the step, or with a picture, is long: the rows of a tile
// read the cache together.  A tile's rows are all of one picture, or of none.  Steps of few rows with
// a sequence of kLongRows or more have no tiles but those of sequences with a picture (TileRules).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "services/common/step/step_batch.h"

namespace tandem::gpu {

inline constexpr uint32_t kLongRows = 9;
inline constexpr uint32_t kLongChain = 4, kFewestChainRows = 17, kMostChainRows = 64;

// Rows that make a sequence of a step of `num_rows` rows long.  A step with tiles may have a launch more, which rotates
// and writes the cache; from 17 rows on, a few chains of guesses pay for that (measured on an H200).  Larger steps have
// prompts, and most of the tiles that short sequences could need would be empty.
// `chain_rows`: as TileRules.
constexpr uint32_t LongRows(uint32_t num_rows, uint32_t chain_rows = kLongChain) {
  return num_rows >= kFewestChainRows && num_rows <= kMostChainRows ? chain_rows : kLongRows;
}

// When rows go through tiles (TileRulesOf).
struct TileRules {
  uint32_t tile_rows = 0;            // of a tile; 0: there are no tiles, every row is decoded
  uint32_t chain_rows = kLongChain;  // kLongChain, or kLongRows where tiles do not pay for chains
  uint32_t decoded_rows = 0;  // steps of kLong up to so many rows decode all without a picture
};

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
  // Positions of the picture that the rows are of; these values if they are of none.
  uint32_t picture_first = 0xFFFFFFFFu;
  uint32_t picture_last = 0;
};
static_assert(sizeof(AttentionTile) == 16);

// Most tiles that a step of up to `num_rows` rows makes, a power of two: a picture begins one, ends one, and may be all
// there is of its sequence.
constexpr uint32_t MaxTiles(uint32_t num_rows, uint32_t tile_rows, uint32_t max_pictures = 0) {
  if (tile_rows == 0) return 0;
  uint32_t long_ones = num_rows / LongRows(num_rows);
  if (num_rows > kMostChainRows) long_ones = std::max(long_ones, kMostChainRows / kLongChain);
  return long_ones + num_rows / tile_rows + 3 * std::min(max_pictures, num_rows);
}

struct AttentionStepLayout {
  // `limits`: its rows and pictures.
  AttentionStepLayout(const StepLimits& limits, const TileRules& tile_rules);
  TileRules rules;
  uint32_t max_pictures = 0, picture_rows = 0;
  size_t tiles = 0;  // offset, bytes
  size_t bytes = 0;
};

// What a step's sequences are to attention.
enum class Sequences : uint8_t {
  kShort,   // none is long
  kChains,  // some are, but all have fewer than kLongRows rows and no picture
  kLong,
};
inline constexpr int kNumSequencesKinds = 3;
Sequences SequencesOf(const StepBatch& batch, const TileRules& rules);

// Writes the rows and tiles of `batch`, and marks unused entries up to the row bucket (the next
// power of two).  The longest tiles come first.  REQUIRES area.size() == layout.bytes.
void WriteAttentionStep(const StepBatch& batch, const AttentionStepLayout& layout,
                        std::span<std::byte> area);

}  // namespace tandem::gpu
