#include "services/gateway/executor/step_power.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tandem::gateway {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

TEST(StepPowerTest, WhatNoHostDrawsIsNotReadable) {
  EXPECT_EQ(PlausibleWatts(0.0), 0.0);
  EXPECT_EQ(PlausibleWatts(312.5), 312.5);
  EXPECT_EQ(PlausibleWatts(100e3), 100e3);
  for (const double garbage : {-1.0, 100.1e3, 1e300, std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_EQ(PlausibleWatts(garbage), 0.0) << garbage;
  }
}

TEST(StepPowerTest, AWorkersSegmentsAddUp) {
  Plan plan;
  plan.workers.resize(3);
  plan.segments = {{.index = 0, .worker = 0}, {.index = 1, .worker = 1}, {.index = 2, .worker = 0}};
  const std::vector<SegmentTiming> timings = {
      {.segment_index = 0, .device_ns = 2'000'000, .device_watts = 100.0},
      {.segment_index = 1, .device_ns = 5'000'000, .device_watts = 0.0},
      {.segment_index = 2, .device_ns = 1'000'000, .device_watts = 300.0},
      {.segment_index = 7, .device_ns = 1'000'000, .device_watts = 300.0}};
  EXPECT_THAT(JoulesOf(plan, timings), ElementsAre(DoubleEq(0.5), 0.0, 0.0));
}

}  // namespace
}  // namespace tandem::gateway
