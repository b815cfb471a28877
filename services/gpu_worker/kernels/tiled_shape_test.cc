// Which kernel attention of long sequences takes, and how many positions at once.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/kernels/attention_step.h"

namespace tandem::gpu {
namespace {

// A device with 48 KiB of shared memory.
Tuning With(const FragmentLayout& layout) {
  Tuning tuning;
  tuning.decode.enabled = tuning.tiled.enabled = true;
  tuning.max_shared_bytes = 48 << 10;
  tuning.matrix.fragments = layout;
  return tuning;
}
constexpr FragmentLayout kQuads = {MatrixPath::kQuads, 12, 10, true, 12, 10};

TEST(TiledShapeTest, TakesQuadsWithThePositionsThatFit) {
  struct {
    uint32_t head_dim, positions;
  } constexpr kHeads[] = {{16, 32}, {24, 32},  {64, 32},  {72, 32},
                          {80, 32}, {128, 32}, {192, 16}, {256, 16}};
  for (const auto& [head_dim, positions] : kHeads) {
    const TiledShape shape = MakeTiledShape(With(kQuads), 4, 2, head_dim);
    EXPECT_EQ(shape.kernel, KernelId::kTiledQuads) << head_dim;
    EXPECT_EQ(shape.positions, positions) << head_dim;
    EXPECT_EQ(shape.tile_rows, head_dim > 128 ? 16u : 32u) << "pairs of two heads";
  }
}

TEST(TiledShapeTest, TakesTheOtherKernelsWhereQuadsDoNotServe) {
  Tuning off = With(kQuads);
  off.tiled.quads = 0;
  EXPECT_EQ(MakeTiledShape(off, 4, 2, 128).kernel, KernelId::kTiledCooperative);
  off.tiled.cooperative = false;
  EXPECT_EQ(MakeTiledShape(off, 4, 2, 128).kernel, KernelId::kTiled);
  for (const FragmentLayout& other :
       {FragmentLayout{MatrixPath::kQuads, 12, 10}, FragmentLayout{.path = MatrixPath::kRows}}) {
    EXPECT_EQ(MakeTiledShape(With(other), 4, 2, 128).kernel, KernelId::kTiledCooperative);
  }
  EXPECT_EQ(MakeTiledShape(With({}), 4, 2, 128).kernel, KernelId::kTiled);
}

// RDNA 3: 64 KiB of shared memory.
TEST(TiledShapeTest, TakesRowsInPartsThatRegistersHold) {
  Tuning rdna3 = With({.path = MatrixPath::kRows, .sums_in_columns = true});
  rdna3.max_shared_bytes = 64 << 10;
  struct {
    uint32_t head_dim, parts;
  } constexpr kHeads[] = {{24, 1}, {64, 1}, {72, 1}, {128, 1}, {136, 2}, {192, 2}, {256, 2}};
  for (const auto& [head_dim, parts] : kHeads) {
    const TiledShape shape = MakeTiledShape(rdna3, 4, 2, head_dim);
    EXPECT_EQ(shape.kernel, KernelId::kTiledRows) << head_dim;
    EXPECT_EQ(shape.parts, parts) << head_dim;
    EXPECT_EQ(shape.positions, 32u) << head_dim;
    EXPECT_EQ(shape.tile_rows, 32u) << "pairs of two heads";
  }
  rdna3.tiled.part_dims = 64;
  EXPECT_EQ(MakeTiledShape(rdna3, 4, 2, 128).parts, 2u);
  rdna3.max_shared_bytes = 32 << 10;
  EXPECT_EQ(MakeTiledShape(rdna3, 4, 2, 256).positions, 16u);
  rdna3.max_shared_bytes = 16 << 10;
  EXPECT_NE(MakeTiledShape(rdna3, 4, 2, 256).kernel, KernelId::kTiledRows);
  rdna3.max_shared_bytes = 64 << 10;
  rdna3.tiled.rows = 0;
  EXPECT_EQ(MakeTiledShape(rdna3, 4, 2, 128).kernel, KernelId::kTiledCooperative);
}

TEST(TiledShapeTest, LittleSharedMemoryLeavesFewerPositionsThenThePlainKernel) {
  Tuning small = With(kQuads);
  small.max_shared_bytes = 32 << 10;
  EXPECT_EQ(MakeTiledShape(small, 4, 2, 128).positions, 16u);
  EXPECT_EQ(MakeTiledShape(small, 4, 2, 128).kernel, KernelId::kTiledQuads);
  EXPECT_EQ(MakeTiledShape(small, 4, 2, 256).kernel, KernelId::kTiled);
  EXPECT_EQ(MakeTiledShape(small, 4, 2, 256).positions, 16u) << "of K and V once";
}

// Of a step with sequences of so many rows.
Sequences Of(const std::vector<uint32_t>& rows, const TileRules& rules = {}) {
  StepBatch batch;
  std::vector<SequenceEntry> sequences;
  for (const uint32_t n : rows) {
    sequences.push_back({.first_row = batch.header.num_rows, .num_rows = n});
    batch.header.num_rows += n;
  }
  batch.sequences = sequences;
  return SequencesOf(batch, rules);
}

TEST(TiledShapeTest, ChainsOfGuessesAreLongInStepsOf17To64Rows) {
  EXPECT_EQ(Of({9}), Sequences::kLong);
  EXPECT_EQ(Of({8, 8}), Sequences::kShort);
  EXPECT_EQ(Of({1, 8, 8}), Sequences::kChains);
  EXPECT_EQ(Of({4, 4, 4, 4, 4}), Sequences::kChains);
  EXPECT_EQ(Of({4, 4, 4, 9}), Sequences::kLong);
  EXPECT_EQ(Of({3, 3, 3, 3, 3, 3}), Sequences::kShort);
  EXPECT_EQ(Of(std::vector<uint32_t>(9, 8)), Sequences::kShort) << "72 rows";
  EXPECT_EQ(Of({8, 8, 1, 80}), Sequences::kLong);
}

TEST(TiledShapeTest, ChainsAreShortWhereTilesDoNotPayForThem) {
  EXPECT_EQ(Of({4, 4, 4, 4, 4}, {.chain_rows = kLongRows}), Sequences::kShort);
  EXPECT_EQ(Of({1, 8, 9}, {.chain_rows = kLongRows}), Sequences::kLong);
  // The kernel for chains takes heads of 64 and 128.
  EXPECT_EQ(TileRulesOf(With(kQuads), 4, 2, 128).chain_rows, kLongChain);
  EXPECT_EQ(TileRulesOf(With(kQuads), 4, 2, 256).chain_rows, kLongRows);
  const Tuning rows = With({.path = MatrixPath::kRows, .sums_in_columns = true});
  EXPECT_EQ(TileRulesOf(rows, 4, 2, 256).chain_rows, kLongChain);
  EXPECT_EQ(TileRulesOf(rows, 4, 2, 256).decoded_rows, 0u);
}

// Rows of tiles that a step makes of sequences of so many rows, the first with a picture of `picture_rows` rows.
uint32_t TiledRows(const std::vector<uint32_t>& lengths, const TileRules& rules,
                   uint32_t picture_rows = 0) {
  std::vector<RowEntry> entries;
  std::vector<SequenceEntry> sequences;
  for (const uint32_t length : lengths) {
    sequences.push_back({.first_row = static_cast<uint32_t>(entries.size()), .num_rows = length});
    const auto sequence = static_cast<uint32_t>(sequences.size() - 1);
    for (uint32_t i = 0; i < length; ++i) entries.push_back({i, i, sequence, 0});
  }
  const auto rows = static_cast<uint32_t>(entries.size());
  const PictureEntry picture = {0, picture_rows};
  StepBatch batch;
  batch.header.num_rows = rows;
  batch.rows = entries;
  batch.sequences = sequences;
  if (picture_rows > 0) batch.pictures = {&picture, 1};
  const AttentionStepLayout layout(
      {.max_rows = rows, .max_pictures = 1, .picture_rows = picture_rows}, rules);
  std::vector<std::byte> area(layout.bytes);
  WriteAttentionStep(batch, layout, area);
  uint32_t decoded = 0, tiled = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    AttentionRow row;
    std::memcpy(&row, area.data() + i * sizeof(row), sizeof(row));
    decoded += row.fresh == row.position + 1 ? 1 : 0;
  }
  for (size_t at = layout.tiles; at < area.size(); at += sizeof(AttentionTile)) {
    AttentionTile tile;
    std::memcpy(&tile, area.data() + at, sizeof(tile));
    tiled += tile.num_rows;
  }
  EXPECT_EQ(decoded + tiled, rows);
  return tiled;
}

TEST(TiledShapeTest, StepsOfFewRowsAndHeadsAreDecoded) {
  const auto rules = [](uint32_t num_heads) {
    return TileRulesOf(With(kQuads), num_heads, num_heads / 2, 128);
  };
  EXPECT_EQ(TiledRows({16}, rules(32)), 0u);
  EXPECT_EQ(TiledRows({17}, rules(32)), 17u);
  EXPECT_EQ(TiledRows({64}, rules(8)), 0u);
  EXPECT_EQ(TiledRows({65}, rules(8)), 65u);
  EXPECT_EQ(TiledRows({16}, rules(32), 9), 16u) << "rows of a picture see rows behind them";
  EXPECT_EQ(TiledRows({9}, {.tile_rows = 16}), 9u);
  EXPECT_EQ(TiledRows({9, 4, 4}, rules(8)), 0u) << "chains beside a long one";
  EXPECT_EQ(TiledRows({9, 9, 4}, rules(8), 5), 9u) << "a picture in the first";
  EXPECT_EQ(TiledRows({8, 8, 8}, rules(8)), 24u);
  // Chains keep their kernel.
  EXPECT_EQ(Of({8, 8, 8}, rules(8)), Sequences::kChains);
}

TEST(TiledShapeTest, ALargerStepHasRoomForASmallersTiles) {
  for (const uint32_t tile_rows : {1u, 4u, 16u, 64u, 128u}) {
    for (uint32_t rows = 1; rows <= 4096; rows *= 2) {
      EXPECT_LE(MaxTiles(rows, tile_rows), MaxTiles(2 * rows, tile_rows)) << rows;
    }
  }
}

}  // namespace
}  // namespace tandem::gpu
