#include "services/gpu_worker/kernels/tuning.h"

#include <gtest/gtest.h>

#include "services/gpu_worker/kernels/tile_splits.h"

namespace tandem::gpu {
namespace {

vulkan::DeviceInfo Device(VkPhysicalDeviceType type, uint32_t subgroup_size) {
  vulkan::DeviceInfo info;
  info.type = type;
  info.subgroup_size = subgroup_size;
  info.max_workgroup_invocations = 1024;
  return info;
}

TEST(TuningTest, WorkgroupsAreWholeSubgroups) {
  for (const uint32_t subgroup_size : {8u, 16u, 32u, 64u}) {
    for (const auto type : {VK_PHYSICAL_DEVICE_TYPE_CPU, VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU}) {
      const Tuning tuning = TuningFor(Device(type, subgroup_size));
      EXPECT_EQ(tuning.norm_threads % subgroup_size, 0u);
      EXPECT_EQ(tuning.reduce_threads % subgroup_size, 0u);
      EXPECT_LE(tuning.matmul_subgroups * subgroup_size, 1024u);
      EXPECT_EQ(tuning.matmul_columns % 2, 0u) << "a gate and its up go together";
    }
  }
}

TEST(TuningTest, LoopsAreLimitedOnlyWhereTheDriverLimitsThem) {
  vulkan::DeviceInfo info = Device(VK_PHYSICAL_DEVICE_TYPE_CPU, 8);
  EXPECT_EQ(MaxContext(TuningFor(info)), ~0u);
  info.max_loop_iterations = 65535;
  const Tuning tuning = TuningFor(info);
  EXPECT_GE(MaxContext(tuning), 131072u);
  EXPECT_GE(MaxHiddenDim(tuning), 5376u);
}

// Figures of an H200, 264 workgroups at once: as many parts as fill it, none where tiles do.
TEST(TuningTest, SplitsKToFillTheDevice) {
  EXPECT_EQ(num_splits(264, 64, 100), 4u);
  EXPECT_EQ(num_splits(264, 42, 100), 6u);
  EXPECT_EQ(num_splits(264, 42, 5), 5u);
  EXPECT_EQ(num_splits(264, 168, 100), 3u) << "two waves of half the size gain nothing";
  EXPECT_EQ(num_splits(264, 256, 100), 1u);
  EXPECT_EQ(num_splits(264, 336, 100), 1u);
  EXPECT_EQ(num_splits(1, 1, 100), 1u);
  EXPECT_EQ(num_splits(264, 144, 5), 5u) << "what 672 tiles leave";
  EXPECT_EQ(num_splits(264, 0, 100), 1u);
}

TEST(TuningTest, SplitsTheTilesThatFullWavesLeave) {
  // Gate and up of 27B, down of 27B; 9 tiles of 64 rows.
  const TileSplits up = split_tiles(9, 168, 264, 21, 832), down = split_tiles(9, 21, 264, 84, 832);
  EXPECT_EQ(up.whole, 146u) << "five waves of 264";
  EXPECT_EQ(up.parts, 4u);
  EXPECT_EQ(down.whole, 0u);
  EXPECT_EQ(down.parts, 4u);
  EXPECT_EQ(split_tiles(9, 168, 264, 21, 0).parts, 1u) << "no workspace";
  EXPECT_EQ(split_tiles(64, 100, 9999, 21, ~0u).parts, 1u) << "more tiles than counters";
  for (uint32_t rows = 1; rows <= 64; ++rows) {
    for (const uint32_t columns : {1u, 4u, 21u, 168u, 1024u}) {
      const TileSplits splits = split_tiles(rows, columns, 264, 21, 832);
      EXPECT_LE(splits.whole, columns);
      EXPECT_LE(splits.parts, 21u);
      EXPECT_TRUE(splits.parts == 1 || rows * (columns - splits.whole) * splits.parts <= 832);
    }
  }
}

TEST(TuningTest, TheLastMatrixTileFitsAll) {
  const MatrixTile last = MatrixTiles().back();
  EXPECT_EQ(last.max_rows, ~0u);
  EXPECT_EQ(last.min_columns, 0u);
  EXPECT_EQ(last.min_bits, 0u);
}

}  // namespace
}  // namespace tandem::gpu
