#include "services/common/energy/power_window.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(PowerWindowTest, OneReadingSaysNothing) {
  PowerWindow window;
  EXPECT_EQ(window.Watts(), 0.0);
  window.Add(100.0, 5000.0);
  EXPECT_EQ(window.Watts(), 0.0);
}

TEST(PowerWindowTest, IsTheMeanOfWhatThereIsUntilASecondHasPassed) {
  PowerWindow window;
  window.Add(100.0, 5000.0);
  window.Add(100.1, 5003.0);
  EXPECT_NEAR(window.Watts(), 30.0, 1e-6);
  window.Add(100.3, 5003.0);
  EXPECT_NEAR(window.Watts(), 10.0, 1e-6);
}

TEST(PowerWindowTest, ForgetsWhatWasASecondAgo) {
  PowerWindow window;
  double joules = 0.0;
  for (int i = 0; i <= 100; ++i) {
    window.Add(0.1 * i, joules);
    joules += 30.0;  // 300 W
  }
  EXPECT_NEAR(window.Watts(), 300.0, 1e-6);
  for (int i = 101; i <= 105; ++i) {
    window.Add(0.1 * i, joules);
    joules += 5.0;  // 50 W
  }
  EXPECT_NEAR(window.Watts(), 200.0, 15.0) << "six tenths of it, and four";
  for (int i = 106; i <= 120; ++i) {
    window.Add(0.1 * i, joules);
    joules += 5.0;
  }
  EXPECT_NEAR(window.Watts(), 50.0, 1e-6);
}

TEST(PowerWindowTest, AReadingAfterALongPauseIsTheMeanOfThePause) {
  PowerWindow window;
  window.Add(0.0, 0.0);
  window.Add(0.1, 100.0);
  window.Add(10.1, 200.0);
  EXPECT_NEAR(window.Watts(), 10.0, 1e-6);
}

TEST(PowerWindowTest, ACounterThatFallsIsNoPower) {
  PowerWindow window;
  window.Add(0.0, 100.0);
  window.Add(0.5, 1.0);
  EXPECT_EQ(window.Watts(), 0.0);
  window.Add(0.5, 1.0);
  EXPECT_EQ(window.Watts(), 0.0);
}

}  // namespace
}  // namespace tandem
