#include "services/gateway/http/get_limiter.h"

#include <gtest/gtest.h>

#include "absl/strings/str_format.h"

namespace tandem::gateway {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(GetLimiterTest, TwoSecondsWorthAtOnceThenByTheSecond) {
  GetLimiter gets(10);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(gets.Take("a", kStart).has_value()) << i;
  EXPECT_EQ(gets.Take("a", kStart), absl::Milliseconds(100));
  EXPECT_FALSE(gets.Take("b", kStart).has_value()) << "another client's";
  EXPECT_FALSE(gets.Take("a", kStart + absl::Milliseconds(101)).has_value());
  EXPECT_TRUE(gets.Take("a", kStart + absl::Milliseconds(102)).has_value());
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(gets.Take("a", kStart + absl::Hours(1)).has_value());
  EXPECT_TRUE(gets.Take("a", kStart + absl::Hours(1)).has_value()) << "no more than two seconds'";
}

TEST(GetLimiterTest, LargeAnswersCostMore) {
  GetLimiter gets(10);
  EXPECT_FALSE(gets.Take("a", kStart).has_value());
  gets.Charge("a", GetLimiter::kBytesPerGet - 1, kStart);
  EXPECT_FALSE(gets.Take("a", kStart).has_value());
  gets.Charge("a", 100 * GetLimiter::kBytesPerGet, kStart);
  EXPECT_EQ(gets.Take("a", kStart), absl::Milliseconds(8300));  // 18 were left, 82 are owed
}

TEST(GetLimiterTest, ZeroIsNoLimit) {
  GetLimiter gets(0);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(gets.Take("a", kStart).has_value());
  EXPECT_EQ(gets.num_clients(), 0u);
}

TEST(GetLimiterTest, ClientsBeyondTheMostShareABucketUntilOthersAreFull) {
  GetLimiter gets(1);
  for (size_t i = 0; i < GetLimiter::kMaxClients; ++i) gets.Take(absl::StrFormat("%d", i), kStart);
  EXPECT_FALSE(gets.Take("x", kStart).has_value());
  EXPECT_FALSE(gets.Take("y", kStart).has_value());
  EXPECT_TRUE(gets.Take("z", kStart).has_value()) << "the third of two";
  EXPECT_EQ(gets.num_clients(), GetLimiter::kMaxClients + 1);
  EXPECT_FALSE(gets.Take("z", kStart + absl::Seconds(5)).has_value());
  EXPECT_EQ(gets.num_clients(), 1u);
}

}  // namespace
}  // namespace tandem::gateway
