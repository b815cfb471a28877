#include "tests/bench/request_clients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "services/common/testing/status_matchers.h"

namespace tandem::bench {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

absl::Time At(int ms) { return absl::FromUnixMillis(ms); }

TEST(CompletionEventsTest, TokensAreThereWhenTheirEventsAreWhole) {
  CompletionEvents events;
  EXPECT_OK(events.Append(": waiting\n\ndata: {\"choices\":[{\"text\":\"\"}],\"us", At(1)));
  EXPECT_OK(events.Append("age\":null}\n\ndata: {\"choices\":[{\"text\":\"a", At(2)));
  EXPECT_OK(events.Append("\"}],\"usage\":null}\n\n", At(3)));
  EXPECT_OK(events.Append("data: {\"choices\":[{\"text\":\"b\"}]}\n\n", At(5)));
  EXPECT_OK(
      events.Append("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
                    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":2}}\n\n",
                    At(7)));
  AnswerTimes times{.sent = At(-1)};
  EXPECT_THAT(events.Finish(times), StatusIs(absl::StatusCode::kInternal, HasSubstr("ended")));
  EXPECT_OK(events.Append("data: [DONE]\n\n", At(8)));
  ASSERT_OK(events.Finish(times));
  EXPECT_EQ(times.sent, At(-1));
  EXPECT_EQ(times.first_token, At(3));
  EXPECT_EQ(times.last_token, At(5));
  EXPECT_EQ(times.tokens, 2u);
}

TEST(CompletionEventsTest, ErrorsAndAnswersWithoutTextFail) {
  CompletionEvents events;
  EXPECT_THAT(events.Append("data: {\"error\":{\"message\":\"gpu0 is lost\"}}\n\n", At(1)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("gpu0 is lost")));
  CompletionEvents empty;
  EXPECT_OK(empty.Append("data: [DONE]\n\n", At(1)));
  AnswerTimes times;
  EXPECT_THAT(empty.Finish(times), StatusIs(absl::StatusCode::kInternal, HasSubstr("text")));
}

// Four tokens, 30 ms after the request, 10 ms apart.
AnswerTimes Answer() {
  return {.sent = At(100), .first_token = At(130), .last_token = At(160), .tokens = 4};
}

TEST(RunLoadTest, EveryClientSendsItsRequests) {
  const Load load{.clients = 3, .rounds = 2, .prompt = 5, .tokens = 4, .vocab_size = 400};
  std::atomic<int> num_requests = 0;
  ASSERT_OK_AND_ASSIGN(const LoadResult result, RunLoad(load, [&]() -> Client {
                         return [&](const BenchRequest& request) {
                           ++num_requests;
                           EXPECT_THAT(request.prompt, SizeIs(5));
                           EXPECT_THAT(request.prompt, Each(::testing::Lt(400u)));
                           return Answer();
                         };
                       }));
  EXPECT_EQ(num_requests, 6);
  EXPECT_THAT(result.first_tokens, SizeIs(6));
  EXPECT_DOUBLE_EQ(result.first_tokens[0], 0.03);
  EXPECT_DOUBLE_EQ(result.per_token[5], 0.01);
}

TEST(RunLoadTest, AnErrorAndAnAnswerOfAnotherLengthFail) {
  const Load load{.clients = 2, .tokens = 5, .vocab_size = 400};
  EXPECT_THAT(RunLoad(load, [] { return [](const BenchRequest&) { return Answer(); }; }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("4 tokens, asked for 5")));
  const auto refuse = [](const BenchRequest&) -> absl::StatusOr<AnswerTimes> {
    return absl::UnavailableError("no");
  };
  EXPECT_THAT(RunLoad(load, [&refuse] { return refuse; }),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no")));
}

TEST(QuantileTest, TakesTheNearest) {
  EXPECT_EQ(Quantile({7}, 0.95), 7);
  EXPECT_EQ(Quantile({1, 2, 3, 4, 5}, 0.5), 3);
  EXPECT_EQ(Quantile({1, 2, 3, 4, 5}, 0.95), 5);
}

}  // namespace
}  // namespace tandem::bench
