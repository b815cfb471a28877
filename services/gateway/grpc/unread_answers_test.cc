#include "services/gateway/grpc/unread_answers.h"

#include <gtest/gtest.h>

#include "services/common/testing/status_matchers.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {
namespace {

using tandem::testing::HasCode;

// An answer of some 2 x 1 MB.
v1::DetokenizeResponse Large() {
  v1::DetokenizeResponse answer;
  answer.set_text(std::string(1 << 20, 'x'));
  return answer;
}

TEST(UnreadAnswersTest, AnswersTogetherAreBoundedAndOneTenantsToo) {
  UnreadAnswers answers(16 << 20);
  std::vector<std::unique_ptr<BodyBudget::Share>> held;
  const auto hold = [&](const char* tenant) {
    auto room = answers.Hold(tenant, Large());
    if (room.ok()) held.push_back(*std::move(room));
    return room.status();
  };
  for (int i = 0; i < 3; ++i) ASSERT_OK(hold("a"));
  EXPECT_THAT(hold("a"), HasCode(absl::StatusCode::kUnavailable));  // half of them
  for (int i = 0; i < 3; ++i) ASSERT_OK(hold("b"));
  EXPECT_THAT(hold("c"), HasCode(absl::StatusCode::kUnavailable));
  held.pop_back();
  EXPECT_OK(hold("c"));
}

TEST(UnreadAnswersTest, SmallAnswersAlwaysPass) {
  UnreadAnswers answers(0);
  v1::DetokenizeResponse small;
  small.set_text("text");
  ASSERT_OK_AND_ASSIGN(const auto room, answers.Hold("a", small));
  EXPECT_EQ(room, nullptr);
}

}  // namespace
}  // namespace tandem::gateway
