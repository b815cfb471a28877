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

// Three workers, the last without a segment.
Plan ThreeWorkers() {
  Plan plan;
  plan.workers.resize(3);
  plan.segments = {{.index = 0, .worker = 0}, {.index = 1, .worker = 1}, {.index = 2, .worker = 0}};
  return plan;
}

// Of a step of such a plan.
std::vector<SegmentTiming> Timings(double first, double second, double third) {
  return {{.segment_index = 0, .device_ns = 1000, .device_watts = first},
          {.segment_index = 1, .device_ns = 1000, .device_watts = second},
          {.segment_index = 2, .device_ns = 1000, .device_watts = third}};
}

TEST(MeanPowerTest, IsTheMeanOfAllAnswersOfAWorker) {
  MeanPower power(ThreeWorkers());
  EXPECT_THAT(power.Watts(), ElementsAre(0.0, 0.0, 0.0));
  power.Add(Timings(100.0, 5.0, 200.0));
  power.Add(Timings(300.0, 7.0, 400.0));
  EXPECT_TRUE(power.readable());
  EXPECT_THAT(power.Watts(), ElementsAre(DoubleEq(250.0), DoubleEq(6.0), 0.0));
}

TEST(MeanPowerTest, OneAnswerWithoutPowerIsEnoughNotToKnowIt) {
  MeanPower power(ThreeWorkers());
  power.Add(Timings(100.0, 5.0, 100.0));
  power.Add(Timings(100.0, 0.0, 100.0));
  EXPECT_FALSE(power.readable());
  EXPECT_THAT(power.Watts(), ElementsAre(DoubleEq(100.0), 0.0, 0.0));
}

TEST(MeanPowerTest, AWorkerThatHadNothingToDoNeedsNoPower) {
  MeanPower power(ThreeWorkers());
  std::vector<SegmentTiming> timings = Timings(100.0, 0.0, 100.0);
  timings[1].device_ns = 0;
  power.Add(timings);
  EXPECT_TRUE(power.readable());
}

TEST(StepPowerTest, AWorkersSegmentsAddUp) {
  const std::vector<SegmentTiming> timings = {
      {.segment_index = 0, .device_ns = 2'000'000, .device_watts = 100.0},
      {.segment_index = 1, .device_ns = 5'000'000, .device_watts = 0.0},
      {.segment_index = 2, .device_ns = 1'000'000, .device_watts = 300.0},
      {.segment_index = 7, .device_ns = 1'000'000, .device_watts = 300.0}};
  EXPECT_THAT(JoulesOf(ThreeWorkers(), timings), ElementsAre(DoubleEq(0.5), 0.0, 0.0));
}

}  // namespace
}  // namespace tandem::gateway
