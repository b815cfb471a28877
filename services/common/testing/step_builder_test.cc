#include "services/common/testing/step_builder.h"

#include <gtest/gtest.h>

#include <set>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/status_matchers.h"

namespace tandem::testing {
namespace {

TEST(StepBuilderTest, EveryStepItBuildsIsAccepted) {
  const StepLimits limits = MakeStepLimits(MakeConfig({.sliding_window = 20}), {});
  StepBuilder steps(limits);
  const uint32_t a = steps.AddSequence();
  const uint32_t b = steps.AddSequence();
  std::vector<std::byte> area(StepAreaBytes(limits)), storage;
  for (int step = 0; step < 60; ++step) {
    steps.Begin();
    steps.AddRows(b, {1, 2, 3});
    steps.AddOutput(steps.AddRows(a, {7}));
    WriteStep(steps.batch(), area);
    ASSERT_OK(ParseStep(area, limits, storage));
  }
  EXPECT_EQ(steps.Length(a), 60u);
  EXPECT_EQ(steps.Length(b), 180u);
}

TEST(StepBuilderTest, WindowBlocksComeBackAndRemovalFreesTheRest) {
  const StepLimits limits = MakeStepLimits(MakeConfig({.sliding_window = 20}), {});
  StepBuilder steps(limits);
  const uint32_t a = steps.AddSequence();
  for (int step = 0; step < 100; ++step) {
    steps.Begin();
    steps.AddRows(a, {7});
  }
  // 100 positions are 7 blocks; a window of 20 ending at position 99 touches blocks 5 and 6.
  EXPECT_EQ(steps.num_free_blocks(kGlobalGroup), limits.num_blocks[kGlobalGroup] - 7);
  EXPECT_EQ(steps.num_free_blocks(kWindowGroup), limits.num_blocks[kWindowGroup] - 2);
  steps.RemoveSequence(a);
  EXPECT_EQ(steps.num_free_blocks(kGlobalGroup), limits.num_blocks[kGlobalGroup]);
  EXPECT_EQ(steps.num_free_blocks(kWindowGroup), limits.num_blocks[kWindowGroup]);
}

TEST(StepBuilderTest, SequencesNeverShareABlock) {
  const StepLimits limits = MakeStepLimits(MakeConfig({}), {});
  StepBuilder steps(limits);
  steps.Begin();
  for (int s = 0; s < 4; ++s) {
    const uint32_t sequence = steps.AddSequence();
    steps.AddRows(sequence, std::vector<uint32_t>(16, 3));
  }
  const StepBatch batch = steps.batch();
  for (int group = 0; group < kNumKvGroups; ++group) {
    std::set<uint32_t> blocks;
    for (const SequenceEntry& sequence : batch.sequences) {
      EXPECT_TRUE(blocks.insert(batch.block_table[sequence.table_offset[group]]).second);
    }
  }
}

}  // namespace
}  // namespace tandem::testing
