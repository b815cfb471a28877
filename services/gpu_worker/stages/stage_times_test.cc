#include "services/gpu_worker/stages/stage_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/random_weights.h"

namespace tandem::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SecondsAtTest, FollowsTheMeasuredRowsAndGrowsWithThemBeyond) {
  const SecondsByRows measured = {{2, 0.010}, {4, 0.012}, {8, 0.020}};
  EXPECT_DOUBLE_EQ(SecondsAt(measured, 1), 0.010);
  EXPECT_DOUBLE_EQ(SecondsAt(measured, 2), 0.010);
  EXPECT_DOUBLE_EQ(SecondsAt(measured, 3), 0.011);
  EXPECT_DOUBLE_EQ(SecondsAt(measured, 6), 0.016);
  EXPECT_DOUBLE_EQ(SecondsAt(measured, 8), 0.020);
  EXPECT_DOUBLE_EQ(SecondsAt(measured, 512), 0.020 * 64);
}

TEST(CutsOfTest, APartHoldsAsManyStagesAsTheBudgetDoes) {
  EXPECT_THAT(CutsOf({}, 1), IsEmpty());
  const std::vector<double> seconds = {1, 2, 3, 4, 1, 1};
  EXPECT_THAT(CutsOf(seconds, 100), IsEmpty());
  EXPECT_THAT(CutsOf(seconds, 12), IsEmpty()) << "just enough";
  EXPECT_THAT(CutsOf(seconds, 6), ElementsAre(3));
  EXPECT_THAT(CutsOf(seconds, 5), ElementsAre(2, 3, 5));
}

TEST(CutsOfTest, AStageOverTheBudgetIsByItself) {
  EXPECT_THAT(CutsOf(std::vector<double>{1, 9, 1, 1}, 3), ElementsAre(1, 2));
  EXPECT_THAT(CutsOf(std::vector<double>{9, 1}, 3), ElementsAre(1));
  EXPECT_THAT(CutsOf(std::vector<double>{1, 1, 1}, 0), ElementsAre(1, 2));
}

TEST(CutsOfTest, NoPartIsOverTheBudgetWhereNoStageIs) {
  std::vector<double> seconds(257);
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = 1 + i * 7919 % 13;
  for (const double budget : {13.0, 14.0, 50.0, 1000.0}) {
    std::vector<uint32_t> cuts = CutsOf(seconds, budget);
    cuts.push_back(seconds.size());
    uint32_t begin = 0;
    for (const uint32_t end : cuts) {
      ASSERT_LT(begin, end);
      EXPECT_LE(std::accumulate(&seconds[begin], seconds.data() + end, 0.0), budget);
      begin = end;
    }
  }
}

TEST(StageTimesTest, FillsHalfOfWhatASubmissionMayTake) {
  StageTimes times(0.1, 3);
  EXPECT_DOUBLE_EQ(times.budget(), 0.05);
  EXPECT_EQ(times.Of(1, 8), 0) << "not of this worker";
  times.Set(1, {{1, 0.002}});
  EXPECT_DOUBLE_EQ(times.Of(1, 8), 0.016);
}

TEST(StageTimesTest, FindsTheStageThatIsTooLongAndTheRowsThatFit) {
  StageTimes times(0.1, 4);
  times.Set(1, {{1, 0.001}});
  times.Set(2, {{1, 0.002}});
  const std::vector<uint32_t> fit = {1, 2, 4, 8, 16, 32}, all = {1, 2, 4, 8, 16, 32, 64, 128};
  EXPECT_FALSE(times.FindLongStage(fit, 256).has_value());
  const auto found = times.FindLongStage(all, 256);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ordinal, 2u);
  EXPECT_EQ(found->rows, 64u);
  EXPECT_DOUBLE_EQ(found->seconds, 0.128);
  EXPECT_EQ(found->fitting_rows, 32u);
  times.Set(1, {{1, 0.2}});
  EXPECT_EQ(times.FindLongStage(all, 256)->fitting_rows, 0u);
}

TEST(StageTimesTest, AHeadIsAsLongAsItsTile) {
  StageTimes times(0.1, 4);
  times.Set(3, {{1, 0.002}});
  const std::vector<uint32_t> buckets = {1, 32, 64};
  EXPECT_FALSE(times.FindLongStage(buckets, 32).has_value());
  EXPECT_EQ(times.FindLongStage(buckets, 64)->rows, 64u);
}

TEST(MayTakeLongerTest, SmallModelsNeedNoMeasuring) {
  const ModelConfig config = testing::MakeConfig({});
  const auto weights = testing::RandomWeightSet(config);
  const StepLimits limits = testing::MakeStepLimits(config, {.max_rows = 64});
  const Segment whole = testing::WholeModel(config)[0];
  EXPECT_FALSE(MayTakeLonger(0.05, whole, *weights, limits, 0));
  EXPECT_TRUE(MayTakeLonger(1e-9, whole, *weights, limits, 0));
  EXPECT_TRUE(MayTakeLonger(0.05, whole, *weights, limits, uint64_t{300} << 20))
      << "5 GB/s read 250 MB in 50 ms";
  StepLimits more = limits;
  more.max_rows = more.context_len = 1 << 20;
  EXPECT_TRUE(MayTakeLonger(0.05, whole, *weights, more, 0));
}

}  // namespace
}  // namespace tandem::gpu
