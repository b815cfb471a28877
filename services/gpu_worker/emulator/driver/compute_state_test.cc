#include "services/gpu_worker/emulator/driver/compute_state.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::rdna {
namespace {

ComputeState WithGroups(Size3 threads) {
  ComputeState state;
  for (uint32_t i = 0; i < 3; ++i) state.Set(pm4::kNumThreadX + i, threads[i]);
  return state;
}

// Group id -> threads, over all parts; fails if a group comes twice.
std::map<Size3, Size3> Groups(const std::vector<Dispatch>& dispatches) {
  std::map<Size3, Size3> groups;
  for (const Dispatch& d : dispatches) {
    for (uint32_t z = 0; z < d.groups[2]; ++z) {
      for (uint32_t y = 0; y < d.groups[1]; ++y) {
        for (uint32_t x = 0; x < d.groups[0]; ++x) {
          const Size3 id = {d.first_group[0] + x, d.first_group[1] + y, d.first_group[2] + z};
          EXPECT_TRUE(groups.emplace(id, d.group_size).second);
        }
      }
    }
  }
  return groups;
}

TEST(ComputeStateTest, StartsWhereTheRegistersSay) {
  ComputeState state = WithGroups({8, 1, 1});
  state.Set(pm4::kStartX, 3);
  const auto dispatches = state.Dispatches(Gfx::k1103, {5, 1, 1}, 1);
  ASSERT_EQ(dispatches.size(), 1u);
  EXPECT_EQ(dispatches[0].first_group[0], 3u);
  EXPECT_EQ(dispatches[0].groups[0], 2u);  // the packet has the end
  EXPECT_EQ(state.Dispatches(Gfx::k1103, {5, 1, 1}, 1 | pm4::kForceStartAtZero)[0].groups[0], 5u);
}

TEST(ComputeStateTest, RunsNothingForZeroGroups) {
  const ComputeState state = WithGroups({8, 1, 1});
  EXPECT_TRUE(state.Dispatches(Gfx::k1103, {0, 1, 1}, 5).empty());
  EXPECT_TRUE(state.Dispatches(Gfx::k1103, {1, 1, 0}, 5).empty());
}

TEST(ComputeStateTest, TakesPartialGroupsFromTheRegister) {
  const ComputeState state = WithGroups({64 | 5 << 16, 4 | 4 << 16, 1 | 1 << 16});
  const auto groups = Groups(state.Dispatches(Gfx::k1103, {3, 2, 1}, 5 | pm4::kPartialGroups));
  ASSERT_EQ(groups.size(), 6u);
  for (const auto& [id, size] : groups) {
    EXPECT_EQ(size, (Size3{id[0] == 2 ? 5u : 64u, 4, 1}));
  }
}

TEST(ComputeStateTest, CutsThreadsIntoGroupsAtEveryEdge) {
  const ComputeState state = WithGroups({4, 3, 2});
  for (const Size3 threads : {Size3{1, 1, 1}, {4, 3, 2}, {9, 7, 5}, {8, 7, 2}, {5, 3, 3}}) {
    const auto groups =
        Groups(state.Dispatches(Gfx::k1150, threads, 5 | pm4::kUseThreadDimensions));
    uint64_t total = 0;
    for (const auto& [id, size] : groups) total += uint64_t{size[0]} * size[1] * size[2];
    EXPECT_EQ(total, uint64_t{threads[0]} * threads[1] * threads[2]);
    EXPECT_EQ(groups.size(),
              size_t{(threads[0] + 3) / 4} * ((threads[1] + 2) / 3) * ((threads[2] + 1) / 2));
  }
}

TEST(ComputeStateTest, HandsOverScratchIfItIsEnabled) {
  ComputeState state = WithGroups({32, 1, 1});
  state.Set(pm4::kScratchBaseLo, 0x00200000);
  state.Set(pm4::kScratchBaseLo + 1, 0x80);
  state.Set(pm4::kTmpringSize, 3 << 12 | 32);
  EXPECT_EQ(state.Dispatches(Gfx::k1103, {1, 1, 1}, 5)[0].scratch_bytes_per_wave, 0u);
  state.Set(pm4::kPgmRsrc2, 1);
  const Dispatch dispatch = state.Dispatches(Gfx::k1103, {1, 1, 1}, 5)[0];
  EXPECT_EQ(dispatch.scratch, 0x800020000000u);
  EXPECT_EQ(dispatch.scratch_bytes_per_wave, 768u);
}

TEST(ComputeStateTest, KnowsItsRegisters) {
  ComputeState state;
  EXPECT_TRUE(state.Set(pm4::kShRegisters - 1, 1));
  EXPECT_FALSE(state.Set(pm4::kShRegisters, 1));
}

}  // namespace
}  // namespace tandem::rdna
