#include "services/gateway/engine/step_costs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::gateway {
namespace {

// A device whose step takes 10 ms, 0.5 ms a decode row and 20 us a prompt row.
double DeviceStep(uint32_t decode_rows, uint32_t prompt_rows) {
  return 0.010 + 0.0005 * decode_rows + 0.00002 * prompt_rows;
}

TEST(StepCostsTest, NothingIsKnownBeforeTheFirstStep) {
  StepCosts costs;
  EXPECT_FALSE(costs.known());
  costs.StepTook(3, 0, 0.5);
  EXPECT_TRUE(costs.known());
  EXPECT_DOUBLE_EQ(costs.Step(3, 0), 0.5);
}

TEST(StepCostsTest, FillsWhatWasNotMeasuredFromWhatWas) {
  StepCosts costs;
  for (int i = 0; i < 20; ++i) {
    for (const uint32_t rows : {1u, 7u, 32u}) costs.StepTook(rows, 0, DeviceStep(rows, 0));
    for (const uint32_t rows : {64u, 512u}) costs.StepTook(7, rows, DeviceStep(7, rows));
    for (const uint32_t rows : {64u, 512u}) costs.StepTook(0, rows, DeviceStep(0, rows));
  }
  for (const uint32_t decode : {1u, 2u, 7u, 20u, 32u, 100u}) {
    EXPECT_NEAR(costs.Step(decode, 0), DeviceStep(decode, 0), 1e-6) << decode;
    for (const uint32_t prompt : {64u, 100u, 512u, 2000u}) {
      EXPECT_NEAR(costs.Step(decode, prompt), DeviceStep(decode, prompt), 1e-6)
          << decode << " " << prompt;
    }
  }
  for (const uint32_t prompt : {64u, 300u, 512u, 4096u}) {
    EXPECT_NEAR(costs.Step(0, prompt), DeviceStep(0, prompt), 1e-6) << prompt;
  }
}

TEST(StepCostsTest, AKindOfRowsThatWasNotMeasuredCountsAsTheOther) {
  StepCosts prompts;
  prompts.StepTook(0, 100, 0.2);
  EXPECT_DOUBLE_EQ(prompts.Step(4, 0), 0.2) << "no more than the step that was seen";
  EXPECT_DOUBLE_EQ(prompts.Step(4, 200), 0.4);
  StepCosts decodes;
  decodes.StepTook(10, 0, 0.05);
  EXPECT_DOUBLE_EQ(decodes.Step(0, 100), 0.5);
}

TEST(StepCostsTest, FollowsADeviceThatSlowsDownAndForgivesAHiccup) {
  StepCosts costs;
  costs.StepTook(4, 0, 0.010);
  costs.StepTook(4, 0, 5.0);
  EXPECT_LT(costs.Step(4, 0), 0.013);
  for (int i = 0; i < 20; ++i) costs.StepTook(4, 0, 0.040);
  EXPECT_NEAR(costs.Step(4, 0), 0.040, 0.001);
  EXPECT_TRUE(costs.settled());
}

TEST(StepCostsTest, ASlowFirstStepIsSoonForgotten) {
  StepCosts costs;
  costs.StepTook(4, 0, 5.0);
  EXPECT_FALSE(costs.settled());
  for (int i = 0; i < 12; ++i) costs.StepTook(4, 0, 0.020);
  EXPECT_LT(costs.Step(4, 0), 0.022);
}

TEST(StepCostsTest, FindsThePromptRowsThatFitIntoATime) {
  StepCosts costs;
  EXPECT_EQ(costs.PromptRowsWithin(8, 1.0, 512), 0u) << "nothing is known";
  // It tries larger steps one after the other, from what a scheduler gives at least.
  const double target = DeviceStep(8, 300);
  uint32_t rows = 8;
  for (int step = 0; step < 60; ++step) {
    costs.StepTook(8, 0, DeviceStep(8, 0));
    costs.StepTook(8, rows, DeviceStep(8, rows));
    const uint32_t next = costs.PromptRowsWithin(8, target, 512);
    EXPECT_LE(next, 2 * rows + 1) << step;
    rows = std::max(next, 8u);
  }
  EXPECT_NEAR(rows, 300, 3);
  EXPECT_EQ(costs.PromptRowsWithin(8, 1.0, 100), 100u);
  EXPECT_EQ(costs.PromptRowsWithin(8, DeviceStep(8, 0) - 0.001, 512), 0u);
  costs.StepTook(16, 0, DeviceStep(16, 0));
  EXPECT_LT(costs.PromptRowsWithin(16, target, 512), rows) << "more decode rows leave less";
}

TEST(StepCostsTest, BucketsOfAllSizesKeepTheirOrder) {
  RowSeconds seconds;
  for (uint32_t rows = 1; rows < 1u << 30; rows = rows * 3 / 2 + 1) seconds.Took(rows, 1e-6 * rows);
  for (uint32_t rows = 1; rows < 1u << 30; rows = rows * 2 + 1) {
    EXPECT_NEAR(seconds.Of(rows, false), 1e-6 * rows, 1e-9 * rows) << rows;
  }
}

}  // namespace
}  // namespace tandem::gateway
