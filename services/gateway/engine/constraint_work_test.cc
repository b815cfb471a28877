// Work between the tokens of constrained answers: how much is done at once, and whose turn it is.
#include "services/gateway/engine/constraint_work.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/synchronization/notification.h"
#include "services/gateway/engine/testing/constrained_answers.h"

namespace tandem::gateway {
namespace {

using constraint::Constraint;
using constraint::SourceKind;
using testing::Compile;

std::vector<uint32_t> Encode(std::string_view text) {
  return testing::ToyTokenizer().Encode(text).value();
}

// Before its first token.
std::unique_ptr<ConstraintWork> FirstWork(std::shared_ptr<Constraint> grammar, uint64_t request = 1,
                                          std::string sender = "") {
  auto work = std::make_unique<ConstraintWork>();
  work->request = request;
  work->grammar = std::move(grammar);
  work->sender = std::move(sender);
  work->most_quick = 25'000;
  return work;
}

TEST(ConstraintWorkTest, WhatIsNotQuickIsCutOffAndCanBeDoneAgain) {
  const auto grammar = Compile(SourceKind::kRegex, testing::kPattern);
  auto first = FirstWork(grammar);
  first->state = grammar->Start().value();
  first->most_quick = 2;
  first->only_quick = true;
  RunConstraintWork(&Encode, *first);
  EXPECT_TRUE(first->cut_off);
  EXPECT_FALSE(first->status.ok());
  EXPECT_TRUE(grammar->slow());

  auto again = FirstWork(grammar);
  RunConstraintWork(&Encode, *again);
  EXPECT_FALSE(again->cut_off);
  EXPECT_TRUE(again->status.ok()) << again->status;
  EXPECT_FALSE(again->mask.empty());
  EXPECT_GT(again->state->work(), 2u);
}

TEST(ConstraintWorkTest, QuickStepsInARowMakeAConstraintQuickAgain) {
  const auto grammar = Compile(SourceKind::kRegex, testing::kPattern);
  EXPECT_FALSE(grammar->slow());
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 40; ++i) grammar->NoteWork(10, 100);
    EXPECT_EQ(grammar->slow(), round > 0);
    grammar->NoteWork(101, 100);
    EXPECT_TRUE(grammar->slow());
  }
  for (int i = 0; i < 63; ++i) grammar->NoteWork(100, 100);
  EXPECT_TRUE(grammar->slow());
  grammar->NoteWork(100, 100);
  EXPECT_FALSE(grammar->slow());
}

// One thread, held by its first work.
class ConstraintPoolTest : public ::testing::Test {
 protected:
  ConstraintPoolTest()
      : pool_(1, [this](std::string_view text) {
          begun_.WaitForNotification();
          return Encode(text);
        }) {
    Post(0, "first");
  }
  // Its first token is forced, so that the encoder is asked.
  void Post(uint64_t request, const std::string& sender) {
    pool_.Post(FirstWork(Compile(SourceKind::kRegex, "the inn"), request, sender));
  }
  // In the order of their ends.
  std::vector<uint64_t> Finish(size_t num) {
    begun_.Notify();
    std::vector<uint64_t> requests;
    while (requests.size() < num) {
      auto done = pool_.Take(absl::Now() + absl::Seconds(20), true);
      if (done.empty()) break;
      for (const auto& work : done) {
        EXPECT_TRUE(work->status.ok()) << work->status;
        requests.push_back(work->request);
      }
    }
    EXPECT_FALSE(pool_.busy());
    return requests;
  }

  absl::Notification begun_;
  ConstraintPool pool_;
};

TEST_F(ConstraintPoolTest, SendersTakeTurns) {
  for (const uint64_t request : {1, 2, 3}) Post(request, "many");
  Post(4, "one");
  const std::vector<uint64_t> order = Finish(5);
  ASSERT_EQ(order.size(), 5u);
  // The thread may have taken any of the first two before the rest was posted.
  EXPECT_LE(std::ranges::find(order, 4u) - order.begin(), 3);
}

TEST_F(ConstraintPoolTest, WorkOfARequestThatHasEndedIsDropped) {
  for (const uint64_t request : {1, 2, 1, 3}) Post(request, "many");
  // The first work holds the thread; the others have not begun.
  pool_.Forget(1);
  EXPECT_EQ(Finish(3), (std::vector<uint64_t>{0, 2, 3}));
}

}  // namespace
}  // namespace tandem::gateway
