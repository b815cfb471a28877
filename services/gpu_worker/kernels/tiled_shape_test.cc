// Which kernel attention of long sequences takes, and how many positions at once.
#include <gtest/gtest.h>

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
Sequences Of(const std::vector<uint32_t>& rows, uint32_t chain_rows = kLongChain) {
  StepBatch batch;
  std::vector<SequenceEntry> sequences;
  for (const uint32_t n : rows) {
    sequences.push_back({.first_row = batch.header.num_rows, .num_rows = n});
    batch.header.num_rows += n;
  }
  batch.sequences = sequences;
  return SequencesOf(batch, chain_rows);
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
  EXPECT_EQ(Of({4, 4, 4, 4, 4}, kLongRows), Sequences::kShort);
  EXPECT_EQ(Of({1, 8, 9}, kLongRows), Sequences::kLong);
  // The kernel for chains takes heads of 64 and 128.
  EXPECT_EQ(ChainRows(With(kQuads), 4, 2, 128), kLongChain);
  EXPECT_EQ(ChainRows(With(kQuads), 4, 2, 256), kLongRows);
  const Tuning rows = With({.path = MatrixPath::kRows, .sums_in_columns = true});
  EXPECT_EQ(ChainRows(rows, 4, 2, 256), kLongChain);
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
