#include "services/gateway/placement/slowdown.h"

#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

constexpr StepShape kOne = {.decodes = true, .rows = 1, .depth = 1000};
constexpr StepShape kPrompt = {.rows = 256, .depth = 500};

void Steps(Slowdown& device, StepShape shape, double seconds, int steps) {
  for (int i = 0; i < steps; ++i) device.Took(shape, seconds);
}

TEST(SlowdownTest, IsOneWhileStepsTakeWhatTheyTook) {
  Slowdown device;
  EXPECT_EQ(device.ratio(), 1.0);
  Steps(device, kOne, 0.010, 100);
  EXPECT_DOUBLE_EQ(device.ratio(), 1.0);
}

TEST(SlowdownTest, StepsOfAnotherShapeAreNoSlowdown) {
  Slowdown device;
  Steps(device, kOne, 0.010, 20);
  Steps(device, kPrompt, 0.5, 20);
  Steps(device, {.decodes = true, .rows = 16, .depth = 1000}, 0.030, 20);
  Steps(device, {.decodes = true, .rows = 1, .depth = 30'000}, 0.020, 20);
  EXPECT_DOUBLE_EQ(device.ratio(), 1.0);
}

TEST(SlowdownTest, StepsBesideAnotherAreComparedWithTheirLike) {
  constexpr StepShape kBeside = {.decodes = true, .rows = 1, .depth = 1000, .overlaps = true};
  Slowdown device;
  Steps(device, kOne, 0.010, 20);
  Steps(device, kBeside, 0.015, 20);
  EXPECT_DOUBLE_EQ(device.ratio(), 1.0);
  Steps(device, kBeside, 0.045, 60);
  EXPECT_NEAR(device.ratio(), 3.0, 0.1);
}

TEST(SlowdownTest, FollowsAndRecovers) {
  Slowdown device;
  Steps(device, kOne, 0.010, 20);
  Steps(device, kOne, 0.030, 60);
  EXPECT_NEAR(device.ratio(), 3.0, 0.1);
  Steps(device, kOne, 0.010, 60);
  EXPECT_NEAR(device.ratio(), 1.0, 0.1);
}

TEST(SlowdownTest, FollowsADeviceThatHardlyMoves) {
  Slowdown device;
  Steps(device, kOne, 0.001, 20);
  Steps(device, kOne, 0.5, 120);
  EXPECT_NEAR(device.ratio(), 500.0, 25.0);
}

TEST(SlowdownTest, OneStepThatWasHeldUpProvesLittle) {
  Slowdown device;
  Steps(device, kOne, 0.010, 20);
  device.Took(kOne, 100.0);
  EXPECT_LT(device.ratio(), 2.0);
  Steps(device, kOne, 0.010, 16);
  EXPECT_LT(device.ratio(), 1.4);
}

TEST(SlowdownTest, AShapeLearnedWhileSlowIsNotSlowAfterwards) {
  Slowdown device;
  Steps(device, kOne, 0.010, 20);
  Steps(device, kOne, 0.020, 80);
  Steps(device, kPrompt, 1.0, 20);  // twice 0.5
  EXPECT_NEAR(device.ratio(), 2.0, 0.1);
  Steps(device, kPrompt, 0.5, 80);
  EXPECT_NEAR(device.ratio(), 1.0, 0.1);
}

TEST(SlowdownTest, WhatIsExpectedCountsFromTheFirstStep) {
  Slowdown device;
  device.Expect(kOne, 0.010);
  Steps(device, kOne, 0.040, 60);
  EXPECT_NEAR(device.ratio(), 4.0, 0.2);
}

}  // namespace
}  // namespace tandem::gateway
