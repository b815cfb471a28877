#include "services/gateway/executor/step_pacer.h"

#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

using Duration = StepPacer::Duration;
using namespace std::chrono_literals;

constexpr StepSize kDecode = {.num_rows = 16, .num_outputs = 16, .table_len = 320};

TEST(StepPacerTest, ChoosesAtOnceUntilAStepThatIsNoLargerHasRun) {
  StepPacer pacer;
  EXPECT_EQ(pacer.Delay(kDecode), 0ms);
  pacer.StepRan({.num_rows = 17, .num_outputs = 16, .table_len = 320}, 5ms);
  EXPECT_EQ(pacer.Delay(kDecode), 0ms) << "more rows";
  pacer.StepRan({.num_rows = 16, .num_outputs = 16, .table_len = 321}, 5ms);
  EXPECT_EQ(pacer.Delay(kDecode), 0ms) << "longer contexts";
  pacer.StepRan({.num_rows = 16, .num_outputs = 17, .table_len = 320}, 5ms);
  EXPECT_EQ(pacer.Delay(kDecode), 0ms) << "more outputs";
  pacer.StepRan(kDecode, 5ms);
  EXPECT_GT(pacer.Delay(kDecode), 4ms);
}

TEST(StepPacerTest, LeavesTheTimeThatSendingTheStepTakesAndAReserve) {
  StepPacer pacer;
  pacer.StepRan(kDecode, 5ms);
  constexpr Duration kReserved = 4'687'500ns;  // 5 ms less a sixteenth
  EXPECT_EQ(pacer.Delay(kDecode), kReserved);
  for (int i = 0; i < 40; ++i) pacer.CallTook(100us);
  EXPECT_NEAR(static_cast<double>((kReserved - pacer.Delay(kDecode)).count()), 100e3, 1e3);
  pacer.SendingTook(200us);
  pacer.SendingTook(50us);
  EXPECT_NEAR(static_cast<double>((kReserved - pacer.Delay(kDecode)).count()), 300e3, 1e3);
}

TEST(StepPacerTest, AStepShorterThanItsLeadHasItsFollowerChosenAtOnce) {
  StepPacer pacer;
  pacer.StepRan(kDecode, 250us);
  EXPECT_EQ(pacer.Delay(kDecode), 0ms);
  pacer.StepRan(kDecode, 3ms);
  EXPECT_EQ(pacer.Delay(kDecode), 0ms) << "the shortest counts";
}

TEST(StepPacerTest, OneLateWakeUpIsForgotten) {
  StepPacer pacer;
  pacer.StepRan(kDecode, 5ms);
  const Duration before = pacer.Delay(kDecode);
  pacer.SendingTook(9ms);
  EXPECT_EQ(pacer.Delay(kDecode), 0ms);
  int steps = 0;
  while (pacer.Delay(kDecode) < before - 100us && steps < 100) {
    pacer.StepRan(kDecode, 5ms);
    ++steps;
  }
  EXPECT_GT(steps, 10);
  EXPECT_LT(steps, 60);
}

TEST(StepPacerTest, TheShortestOfTheRecentStepsCountsAndIsForgotten) {
  StepPacer pacer;
  pacer.StepRan(kDecode, 2ms);
  pacer.StepRan(kDecode, 5ms);
  EXPECT_LT(pacer.Delay(kDecode), 2ms);
  for (int i = 0; i < 32; ++i) pacer.StepRan(kDecode, 5ms);
  EXPECT_GT(pacer.Delay(kDecode), 4ms);
}

TEST(StepPacerTest, SmallStepsSayLittleOfLargeOnes) {
  constexpr StepSize kPrompt = {.num_rows = 512, .num_outputs = 17, .table_len = 400};
  StepPacer pacer;
  pacer.StepRan(kDecode, 5ms);
  EXPECT_GT(pacer.Delay(kPrompt), 4ms) << "at least as long";
  EXPECT_LT(pacer.Delay(kPrompt), 5ms);
  pacer.StepRan(kPrompt, 50ms);
  EXPECT_GT(pacer.Delay(kPrompt), 40ms);
  EXPECT_LT(pacer.Delay(kDecode), 5ms);
}

TEST(StepPacerTest, ADeviceThatDoesNotTellItsTimesIsNeverWaitedFor) {
  StepPacer pacer;
  for (int i = 0; i < 10; ++i) pacer.StepRan(kDecode, 0ms);
  EXPECT_EQ(pacer.Delay(kDecode), 0ms);
}

}  // namespace
}  // namespace tandem::gateway
