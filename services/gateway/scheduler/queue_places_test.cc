#include "services/gateway/scheduler/queue_places.h"

#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

TEST(QueuePlacesTest, OneTenantAloneMayTakeAll) {
  QueuePlaces places(8);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(places.Take("a").ok());
  const absl::Status status = places.Take("a");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("8 requests are running or waiting, 8 at most; 8 of them"),
            std::string::npos)
      << status;
  places.Release("a");
  EXPECT_TRUE(places.Take("a").ok());
}

TEST(QueuePlacesTest, AFullQueueRefusesWhoFilledItAndNobodyElse) {
  QueuePlaces places(8);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(places.Take("a").ok());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(places.Take("b").ok()) << i;
  EXPECT_FALSE(places.Take("b").ok());  // an equal share of 8
  EXPECT_FALSE(places.Take("a").ok());
  EXPECT_TRUE(places.Take("c").ok());
}

TEST(QueuePlacesTest, HoldsTwiceItsCapacityAtMost) {
  QueuePlaces places(8);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(places.Take("a").ok());
  int taken = 0;
  for (int i = 0; i < 100; ++i) taken += places.Take("t" + std::to_string(i)).ok() ? 1 : 0;
  EXPECT_EQ(taken, 8);
  EXPECT_EQ(places.num_taken(), 16u);
}

}  // namespace
}  // namespace tandem::gateway
