// What an engine under load tells those that it refuses.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/rpc/error_details.h"
#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway {
namespace {

using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::MakeEngine;
using testing::StreamReader;

class EngineLoadTest : public ::testing::Test {
 protected:
  EngineLoadTest() {
    FakeExecutorOptions fake;
    fake.on_step = [](const StepBatch&) {
      absl::SleepFor(absl::Milliseconds(10));
      return absl::OkStatus();
    };
    engine_ =
        MakeEngine(fake, {.max_sequences = 4, .max_rows = 64, .chunk_rows = 64, .max_waiting = 4});
  }
  absl::Status Submit(uint32_t seed, uint32_t max_tokens) {
    readers_.push_back(std::make_unique<StreamReader>());
    return engine_->Submit(GreedyRequest(seed, 10, max_tokens), readers_.back()->stream());
  }

  std::vector<std::unique_ptr<StreamReader>> readers_;  // outlive the engine
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineLoadTest, TheTimeThatARefusedRequestIsToldIsRightWithin30Percent) {
  for (uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(Submit(i, 80).ok());
  while (readers_.front()->decisions.size() < 20) readers_.front()->Read();
  const absl::Time begin = absl::Now();
  absl::Status refused = Submit(9, 80);
  ASSERT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  const auto told = RetryAfterOf(refused);
  ASSERT_TRUE(told.has_value()) << refused;
  while (absl::IsResourceExhausted(refused)) {
    absl::SleepFor(absl::Milliseconds(1));
    refused = Submit(9, 80);
  }
  EXPECT_TRUE(refused.ok()) << refused;
  const absl::Duration took = absl::Now() - begin;
  EXPECT_GT(took, absl::Milliseconds(300)) << "or there is nothing to tell";
  EXPECT_LT(absl::AbsDuration(*told - took), 0.3 * took) << "told " << *told << ", took " << took;
}

TEST_F(EngineLoadTest, ADeadlineIsRefusedByWhatStepsTook) {
  ASSERT_TRUE(Submit(1, 30).ok());
  ASSERT_TRUE(readers_.front()->ReadToEnd().status.ok());
  EngineRequest request = GreedyRequest(2, 10, 90);
  request.deadline = absl::Now() + absl::Milliseconds(300);
  StreamReader reader;
  EXPECT_EQ(engine_->Submit(request, reader.stream()).code(), absl::StatusCode::kDeadlineExceeded);
  request.deadline = absl::Now() + absl::Seconds(60);
  ASSERT_TRUE(engine_->Submit(request, reader.stream()).ok());
  EXPECT_TRUE(reader.ReadToEnd().status.ok());
}

}  // namespace
}  // namespace tandem::gateway
