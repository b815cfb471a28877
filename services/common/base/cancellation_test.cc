#include "services/common/base/cancellation.h"

#include <gtest/gtest.h>

#include <thread>

namespace tandem {
namespace {

TEST(CancellationTest, WorkOutsideOfAScopeGoesOn) { EXPECT_TRUE(CheckCancelled().ok()); }

TEST(CancellationTest, TheInnermostScopeCounts) {
  bool outer_gone = false;
  CancellationScope outer([&] { return outer_gone; });
  EXPECT_TRUE(CheckCancelled().ok());
  {
    CancellationScope inner([] { return true; });
    EXPECT_TRUE(absl::IsCancelled(CheckCancelled()));
  }
  EXPECT_TRUE(CheckCancelled().ok());
  outer_gone = true;
  EXPECT_TRUE(absl::IsCancelled(CheckCancelled()));
}

TEST(CancellationTest, AScopeIsOfItsThreadAlone) {
  CancellationScope scope([] { return true; });
  absl::Status other;
  std::thread([&] { other = CheckCancelled(); }).join();
  EXPECT_TRUE(other.ok());
}

}  // namespace
}  // namespace tandem
