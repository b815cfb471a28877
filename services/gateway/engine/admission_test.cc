#include "services/gateway/engine/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

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
  Admission admission_{2};
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
  admission_.Ended("");
  EXPECT_TRUE(Submit(1).ok());
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
  std::thread ends([this] { admission_.Ended(""); });
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
