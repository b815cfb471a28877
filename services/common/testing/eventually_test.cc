#include "services/common/testing/eventually.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace tandem::testing {
namespace {

TEST(EventuallyTest, SucceedsOnceTheConditionHolds) {
  std::atomic<bool> done = false;
  std::thread other([&] { done = true; });
  EXPECT_TRUE(Eventually([&] { return done.load(); }));
  other.join();
}

TEST(EventuallyTest, FailsAtTheDeadlineAndSaysHowLongItWaited) {
  const ::testing::AssertionResult result = Eventually([] { return false; }, absl::Milliseconds(3));
  EXPECT_FALSE(result);
  EXPECT_STREQ(result.message(), "still false after 3ms");
}

TEST(EventuallyTest, AConditionThatHoldsNeedsNoTime) {
  EXPECT_TRUE(Eventually([] { return true; }, absl::ZeroDuration()));
}

}  // namespace
}  // namespace tandem::testing
