#include "services/gpu_worker/stages/stage_shares.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tandem::gpu {
namespace {

TEST(StageSharesTest, TheFirstStepIsWholeAndOneAfterEachPeriodSpent) {
  constexpr uint64_t kStepNs = StageShares::kPeriodNs / 10;
  StageShares shares;
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(shares.NextIsWhole(), i % 10 == 0) << i;
    shares.Share(kStepNs);
  }
}

TEST(StageSharesTest, StepsQueuedBehindAWholeOneAreNot) {
  StageShares shares;
  EXPECT_TRUE(shares.NextIsWhole());
  EXPECT_FALSE(shares.NextIsWhole());
}

TEST(StageSharesTest, PartsAreInProportionAndAddUp) {
  for (const uint64_t total : {0ull, 1ull, 7ull, 1000ull, 123'456'789'123ull}) {
    StageShares shares;
    const StageShares::ByKind spent = {0, 300, 100, 0, 599, 1};
    shares.Learn(spent);
    const StageShares::ByKind parts = shares.Share(total);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), uint64_t{0}), total);
    for (size_t kind = 0; kind < parts.size(); ++kind) {
      EXPECT_NEAR(static_cast<double>(parts[kind]),
                  static_cast<double>(total) * static_cast<double>(spent[kind]) / 1000.0,
                  static_cast<double>(parts.size()));
    }
  }
}

TEST(StageSharesTest, ADeviceWithoutTimestampsSpendsNothing) {
  StageShares shares;
  shares.Learn({});
  EXPECT_EQ(shares.Share(0), StageShares::ByKind{});
}

}  // namespace
}  // namespace tandem::gpu
