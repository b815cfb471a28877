#include "services/gateway/engine/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "services/common/rpc/error_details.h"
#include "services/gateway/engine/testing/stream_reader.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;
using testing::StreamReader;

EngineRequest Request(size_t prompt_len) {
  EngineRequest request;
  request.prompt.assign(prompt_len, 5);
  return request;
}

class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() { admission_.SetMaxSequenceLen(100); }
  absl::Status Submit(size_t prompt_len) {
    return admission_.Submit(Request(prompt_len), reader_.stream());
  }

  StreamReader reader_;
  Admission admission_{{.max_requests = 2, .max_tokens = 150, .max_running = 2, .max_rows = 64}};
};

TEST_F(AdmissionTest, RequestsAreTakenOnceAndInTheirOrder) {
  ASSERT_TRUE(Submit(1).ok());
  ASSERT_TRUE(Submit(2).ok());
  const auto taken = admission_.Take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].request.prompt.size(), 1u);
  EXPECT_EQ(taken[1].request.prompt.size(), 2u);
  EXPECT_TRUE(admission_.Take().empty());
  EXPECT_EQ(admission_.num_requests(), 2u) << "they hold their places until they end";
}

TEST_F(AdmissionTest, AFullQueueRefusesUntilARequestEnds) {
  ASSERT_TRUE(Submit(1).ok());
  ASSERT_TRUE(Submit(1).ok());
  EXPECT_EQ(Submit(1).code(), absl::StatusCode::kResourceExhausted);
  admission_.Ended(1);
  EXPECT_TRUE(Submit(1).ok());
}

TEST_F(AdmissionTest, PromptTokensFillTheQueueTooAndOneRequestAlwaysFits) {
  ASSERT_TRUE(Submit(99).ok());
  const absl::Status full = Submit(99);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("prompts of 99 tokens"));
  EXPECT_THAT(std::string(full.message()), HasSubstr("this prompt has 99"));
  EXPECT_TRUE(Submit(51).ok());
  admission_.Ended(1);
  admission_.Ended(2);
  admission_.SetMaxSequenceLen(1000);
  EXPECT_TRUE(Submit(500).ok()) << "nothing else waits or runs";
}

TEST_F(AdmissionTest, WhoIsRefusedLearnsWhenThereWillBeRoom) {
  for (int i = 0; i < 2; ++i) {
    EngineRequest request = Request(10);
    request.max_tokens = 50 + 50 * static_cast<uint32_t>(i);
    ASSERT_TRUE(admission_.Submit(std::move(request), reader_.stream()).ok());
  }
  EXPECT_FALSE(RetryAfterOf(Submit(1)).has_value()) << "nothing was measured yet";
  admission_.StepTook(0, 20, absl::Milliseconds(30));
  admission_.StepTook(2, 0, absl::Milliseconds(20));
  admission_.Progress({{1, 0, 10}, {2, 0, 10}}, 2);
  const absl::Status full = Submit(1);
  EXPECT_THAT(std::string(full.message()), HasSubstr("at the measured rate, retry in 0.8 s"));
  ASSERT_TRUE(RetryAfterOf(full).has_value());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(*RetryAfterOf(full)), 40 * 20, 40);
  // Prompt tokens that only the second end gives back.
  admission_.Ended(1);
  ASSERT_TRUE(Submit(99).ok());
  admission_.Ended(3);
  ASSERT_TRUE(Submit(1).ok());
}

TEST_F(AdmissionTest, ADeadlineThatTheMeasuredRateCannotMeetIsRefusedWithTheFigure) {
  const auto submit = [&](uint32_t max_tokens, absl::Duration time) {
    EngineRequest request = Request(10);
    request.max_tokens = max_tokens;
    request.deadline = absl::Now() + time;
    return admission_.Submit(std::move(request), reader_.stream());
  };
  ASSERT_TRUE(submit(90, absl::Milliseconds(1)).ok()) << "nothing was measured yet";
  for (int i = 0; i < 10; ++i) {
    admission_.StepTook(0, 20, absl::Milliseconds(30));
    admission_.StepTook(1, 0, absl::Milliseconds(20));
  }
  admission_.AnswerEnded(80, /*by_limit=*/true);
  admission_.Ended(1);
  const absl::Status alone = submit(81, absl::Seconds(1));
  EXPECT_EQ(alone.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(alone.message()), HasSubstr("the deadline in 1.0 s cannot be met"));
  EXPECT_THAT(std::string(alone.message()), HasSubstr("the answer would end in 1.6 s"));
  EXPECT_EQ(admission_.num_requests(), 0u) << "it takes no place";
  EXPECT_TRUE(submit(40, absl::Seconds(1)).ok());
  admission_.Ended(2);

  // Behind others: that passes.
  Admission queue({.max_requests = 100, .max_running = 1, .max_rows = 64});
  queue.SetMaxSequenceLen(1000);
  for (int i = 0; i < 10; ++i) {
    queue.StepTook(0, 10, absl::Milliseconds(20));
    queue.StepTook(1, 0, absl::Milliseconds(20));
  }
  queue.AnswerEnded(80, true);
  EngineRequest request = Request(10);
  request.max_tokens = 80;
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(queue.Submit(EngineRequest(request), reader_.stream()).ok());
  request.deadline = absl::Now() + absl::Seconds(8);
  const absl::Status behind = queue.Submit(EngineRequest(request), reader_.stream());
  EXPECT_EQ(behind.code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(RetryAfterOf(behind).has_value());
  EXPECT_NEAR(absl::ToDoubleSeconds(*RetryAfterOf(behind)), 11 * 80 * 0.020 - 8, 1.5);
  request.deadline = absl::Now() + absl::Seconds(20);
  EXPECT_TRUE(queue.Submit(EngineRequest(request), reader_.stream()).ok());
}

TEST_F(AdmissionTest, PromptsThatLeaveNoRoomAreRefusedAndTakeNoPlace) {
  EXPECT_EQ(Submit(0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Submit(100).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(admission_.num_requests(), 0u);
  EXPECT_TRUE(Submit(99).ok());
  admission_.SetMaxSequenceLen(50);
  EXPECT_THAT(std::string(Submit(50).message()), HasSubstr("a context of 50"));
}

TEST_F(AdmissionTest, DrainingRefusesAndReturnsWithTheLastRequest) {
  ASSERT_TRUE(Submit(1).ok());
  admission_.Drain(absl::ZeroDuration());
  EXPECT_TRUE(admission_.draining());
  EXPECT_EQ(Submit(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(admission_.WaitForRequest(absl::ZeroDuration())) << "the engine still runs";
  std::thread ends([this] { admission_.Ended(1); });
  admission_.Drain(absl::InfiniteDuration());
  EXPECT_EQ(admission_.num_requests(), 0u);
  ends.join();
}

TEST_F(AdmissionTest, StopWakesTheEngineAndItsFirstReasonHolds) {
  std::thread stops([this] { admission_.Stop(absl::UnavailableError("the model is lost")); });
  EXPECT_FALSE(admission_.WaitForRequest(absl::InfiniteDuration()));
  stops.join();
  admission_.Stop(absl::UnavailableError("shutting down"));
  EXPECT_TRUE(admission_.stopped());
  EXPECT_EQ(Submit(1).message(), "the model is lost");
  EXPECT_EQ(admission_.end_reason().message(), "the model is lost");
}

}  // namespace
}  // namespace tandem::gateway
