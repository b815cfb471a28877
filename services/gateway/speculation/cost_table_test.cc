#include "services/gateway/speculation/cost_table.h"

#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

TEST(CostTableTest, KnowsNothingBeforeTheFirstStep) {
  CostTable costs;
  EXPECT_FALSE(costs.known());
  costs.StepTook(1, 0.01);
  EXPECT_TRUE(costs.known());
  EXPECT_DOUBLE_EQ(costs.Step(1), 0.01);
}

TEST(CostTableTest, TriesTheRoundestNumberOfAGap) {
  CostTable costs;
  costs.StepTook(2, 0.010);
  costs.StepTook(8, 0.016);
  EXPECT_DOUBLE_EQ(costs.Step(2), 0.010);
  EXPECT_NEAR(costs.Step(4), 0.0102, 1e-12) << "low enough to be tried";
  EXPECT_DOUBLE_EQ(costs.Step(3), costs.Step(4)) << "no reason to try it before 4";
  EXPECT_DOUBLE_EQ(costs.Step(5), 0.016);
  EXPECT_DOUBLE_EQ(costs.Step(8), 0.016);
  EXPECT_DOUBLE_EQ(costs.Step(1), 0.010) << "no more than a larger step";
  costs.StepTook(4, 0.011);
  EXPECT_NEAR(costs.Step(6), 0.01122, 1e-12);
  EXPECT_NEAR(costs.Step(3), 0.0101, 1e-12);
}

TEST(CostTableTest, TriesMoreRowsThanWereSeenInRoundNumbers) {
  CostTable costs;
  costs.StepTook(8, 0.016);
  EXPECT_NEAR(costs.Step(12), 0.016 * 1.04, 1e-12);
  EXPECT_DOUBLE_EQ(costs.Step(9), costs.Step(12));
  EXPECT_GT(costs.Step(13), costs.Step(12));
  costs.StepTook(1, 0.010);
  EXPECT_NEAR(costs.Step(12), 0.016 * 1.04, 1e-12);
}

TEST(CostTableTest, TakesTheLineBetweenNeighboursWhereItIsFlat) {
  CostTable costs;
  costs.StepTook(2, 0.010);
  costs.StepTook(8, 0.0103);
  EXPECT_NEAR(costs.Step(4), 0.0101, 1e-12);
}

TEST(CostTableTest, BoundsWhatWasNotMeasuredFromBelow) {
  CostTable costs;
  EXPECT_EQ(costs.StepAtLeast(4), 0.0);
  costs.StepTook(8, 0.016);
  EXPECT_EQ(costs.StepAtLeast(8), 0.0) << "one step is not enough";
  for (uint32_t i = 1; i < CostTable::kEnough; ++i) costs.StepTook(8, 0.016);
  EXPECT_DOUBLE_EQ(costs.StepAtLeast(8), 0.016);
  EXPECT_DOUBLE_EQ(costs.StepAtLeast(6), 0.012);
  EXPECT_DOUBLE_EQ(costs.StepAtLeast(20), 0.016);
  for (uint32_t i = 0; i < CostTable::kEnough; ++i) costs.StepTook(2, 0.013);
  EXPECT_DOUBLE_EQ(costs.StepAtLeast(4), 0.013);
  EXPECT_DOUBLE_EQ(costs.StepAtLeast(7), 0.014);
  EXPECT_DOUBLE_EQ(costs.StepAtLeast(1), 0.0065);
}

TEST(CostTableTest, FollowsChangesButNotOneHiccup) {
  CostTable costs;
  for (int i = 0; i < 20; ++i) costs.StepTook(1, 0.010);
  costs.StepTook(1, 5.0);
  EXPECT_LT(costs.Step(1), 0.013);
  for (int i = 0; i < 40; ++i) costs.StepTook(1, 0.020);
  EXPECT_NEAR(costs.Step(1), 0.020, 0.001);
}

TEST(CostTableTest, OldTimesAreNotBelieved) {
  CostTable costs;
  costs.StepTook(1, 0.010);
  costs.StepTook(4, 0.5);
  EXPECT_DOUBLE_EQ(costs.Step(4), 0.5);
  for (uint64_t i = 0; i <= CostTable::kMaxAge; ++i) costs.StepTook(1, 0.010);
  EXPECT_LT(costs.Step(4), 0.013) << "a larger step is tried again";
}

TEST(CostTableTest, StepsLargerThanTheTableAreExtrapolated) {
  CostTable costs;
  costs.StepTook(4, 0.010);
  EXPECT_GE(costs.Step(1000), 0.010);
  costs.StepTook(100000, 1.0);  // no effect, and no harm
  EXPECT_DOUBLE_EQ(costs.Step(4), 0.010);
}

TEST(CostTableTest, GapsAreAveraged) {
  CostTable costs;
  EXPECT_EQ(costs.Gap(), 0.0);
  for (int i = 0; i < 50; ++i) costs.GapTook(0.0003);
  costs.GapTook(1.0);
  EXPECT_NEAR(costs.Gap(), 0.0003, 0.00005);
}

}  // namespace
}  // namespace tandem::gateway
