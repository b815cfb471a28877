#include "services/gateway/api/answer_logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "services/gateway/api/api_error.h"

namespace tandem::gateway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kContext = 100000;

std::vector<EngineRequest> Runs(size_t number, uint32_t max_tokens, uint32_t num_alternatives) {
  EngineRequest run;
  run.prompt.resize(1000);
  run.max_tokens = max_tokens;
  run.num_alternatives = num_alternatives;
  return std::vector<EngineRequest>(number, run);
}

TEST(AnswerLogprobsTest, AnAnswerThatCouldNotBeSentIsRefusedWithItsNumbers) {
  auto runs = Runs(128, 1024, 20);
  const absl::Status status = BoundLogprobs({.copies = 1}, kContext, runs);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(ErrorParam(status), "top_logprobs");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("2752512 log-probabilities (128 sequences, 21 for each token)"),
                    HasSubstr("at most 1048576"), HasSubstr("or stream it")));
  const absl::Status fixed =
      BoundLogprobs({.copies = 4, .member = "logprobs", .fewer_in_stream = false}, kContext, runs);
  EXPECT_EQ(ErrorParam(fixed), "logprobs");
  EXPECT_THAT(std::string(fixed.message()), Not(HasSubstr("stream")));
}

TEST(AnswerLogprobsTest, WhatFitsIsLeftAsItIs) {
  auto runs = Runs(128, 1024, 20);
  EXPECT_TRUE(BoundLogprobs({.copies = 0}, kContext, runs).ok()) << "a stream";
  runs = Runs(128, 390, 20);
  EXPECT_TRUE(BoundLogprobs({.copies = 1}, kContext, runs).ok());
  EXPECT_EQ(runs[0].max_tokens, 390u);
  runs = Runs(128, 391, 20);
  EXPECT_FALSE(BoundLogprobs({.copies = 1}, kContext, runs).ok());
  // The context ends it sooner.
  runs = Runs(128, 1024, 20);
  EXPECT_TRUE(BoundLogprobs({.copies = 1}, 1200, runs).ok());
  EXPECT_EQ(runs[0].max_tokens, 1024u);
}

TEST(AnswerLogprobsTest, WithoutALimitAnAnswerGetsTheTokensThatFit) {
  auto runs = Runs(1, kNoTokenLimit, 20);
  EXPECT_TRUE(BoundLogprobs({.copies = 1}, kContext, runs).ok());
  EXPECT_EQ(runs[0].max_tokens, kMaxAnswerLogprobs / 21);
  runs = Runs(1, kNoTokenLimit, 5);
  EXPECT_TRUE(BoundLogprobs({.copies = 1}, kContext, runs).ok());
  EXPECT_EQ(runs[0].max_tokens, kNoTokenLimit) << "the context ends it";
}

TEST(AnswerLogprobsTest, APromptThatIsReportedCounts) {
  auto runs = Runs(60, 0, 20);
  EXPECT_TRUE(BoundLogprobs({.copies = 1}, kContext, runs).ok());
  for (EngineRequest& run : runs) run.prompt_logprobs = true;
  EXPECT_FALSE(BoundLogprobs({.copies = 1}, kContext, runs).ok());
  runs.resize(40);
  EXPECT_TRUE(BoundLogprobs({.copies = 1}, kContext, runs).ok());
}

TEST(AnswerLogprobsTest, AReaderOfManyMayLeaveFewerUnread) {
  EXPECT_EQ(MaxUnreadTokens(4096, Runs(1, 10, 20)), 4096u);
  EXPECT_EQ(MaxUnreadTokens(4096, Runs(128, 10, 0)), 4096u);
  const uint32_t unread = MaxUnreadTokens(4096, Runs(128, 10, 20));
  EXPECT_LE(uint64_t{unread} * 128 * 21, kMaxAnswerLogprobs + 128 * 21);
  EXPECT_GT(unread, 300u);
}

}  // namespace
}  // namespace tandem::gateway
