#include "services/gateway/http/body_budget.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::gateway {
namespace {

constexpr size_t kKiB = 1 << 10;
constexpr size_t kMiB = 1 << 20;

class BodyBudgetTest : public ::testing::Test {
 protected:
  std::unique_ptr<BodyBudget::Share> Begin(const std::string& sender) {
    return budget_.Begin(
        sender, [this, sender] { gave_way_.push_back(sender); }, now_);
  }

  // A reserve of 1 MiB for small bodies, 7 MiB for large ones, 3.5 MiB for each sender.
  BodyBudget budget_{{.total_bytes = 8 * kMiB, .body_bytes = 2 * kMiB}};
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::vector<std::string> gave_way_;
};

TEST_F(BodyBudgetTest, MemoryIsGivenBackWithTheShare) {
  {
    const auto small = Begin("a");
    const auto large = Begin("a");
    EXPECT_TRUE(small->Grow(10, now_));
    EXPECT_TRUE(large->Grow(64 * kKiB, now_));
    EXPECT_TRUE(large->Grow(kMiB, now_));
    EXPECT_EQ(budget_.used_bytes(), kMiB + 10);
  }
  EXPECT_EQ(budget_.used_bytes(), 0u);
}

TEST_F(BodyBudgetTest, SmallBodiesHaveAReserveThatLargeOnesCannotTake) {
  std::vector<std::unique_ptr<BodyBudget::Share>> large;
  for (const char* sender : {"a", "b", "c", "d"}) {
    large.push_back(Begin(sender));
    EXPECT_EQ(large.back()->Grow(2 * kMiB, now_), large.size() < 4) << sender;
  }
  const auto small = Begin("e");
  EXPECT_TRUE(small->Grow(64 * kKiB, now_));
  EXPECT_TRUE(gave_way_.empty());
}

TEST_F(BodyBudgetTest, OneSenderCannotTakeEverything) {
  const auto first = Begin("a");
  const auto second = Begin("a");
  EXPECT_TRUE(first->Grow(2 * kMiB, now_));
  EXPECT_FALSE(second->Grow(2 * kMiB, now_));
  const auto other = Begin("b");
  EXPECT_TRUE(other->Grow(2 * kMiB, now_));
}

TEST_F(BodyBudgetTest, ABodyThatHasStoppedArrivingGivesWay) {
  const auto slow = Begin("a");
  const auto other = Begin("b");
  EXPECT_TRUE(slow->Grow(2 * kMiB - 1, now_));
  EXPECT_TRUE(other->Grow(2 * kMiB - 1, now_));
  now_ += absl::Milliseconds(1500);
  EXPECT_TRUE(slow->Grow(2 * kMiB, now_)) << "a byte is no block";
  const auto eager = Begin("a");
  EXPECT_TRUE(eager->Grow(2 * kMiB, now_));
  EXPECT_EQ(gave_way_, std::vector<std::string>{"a"}) << "of its sender's, and once";
  EXPECT_FALSE(slow->Grow(2 * kMiB + 1, now_));
  EXPECT_EQ(budget_.used_bytes(), 4 * kMiB - 1);
}

TEST_F(BodyBudgetTest, ABodyThatArrivesOrIsWholeDoesNotGiveWay) {
  const auto whole = Begin("a");
  EXPECT_TRUE(whole->Grow(2 * kMiB, now_));
  whole->Complete();
  const auto arriving = Begin("b");
  EXPECT_TRUE(arriving->Grow(kMiB, now_));
  now_ += absl::Seconds(2);
  EXPECT_TRUE(arriving->Grow(2 * kMiB, now_));
  EXPECT_FALSE(Begin("a")->Grow(2 * kMiB, now_));
  EXPECT_FALSE(Begin("b")->Grow(2 * kMiB, now_));
  EXPECT_TRUE(gave_way_.empty());
}

}  // namespace
}  // namespace tandem::gateway
