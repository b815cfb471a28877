// Streams that do not just run to their end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "services/common/testing/eventually.h"
#include "services/gateway/constraint/testing/held_threads.h"
#include "services/gateway/engine/testing/unfinished.h"
#include "services/gateway/grpc/testing/service_fixture.h"

namespace tandem::gateway {
namespace {

using tandem::testing::Eventually;
using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::Gate;
using testing::Greedy;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::Unfinished;

class StreamRunTest : public testing::ServiceFixture {
 protected:
  constraint::ConstraintCache& constraints() { return (*launcher_->model())->constraints(); }
  void WaitForWaiting(size_t number) {
    ASSERT_TRUE(Eventually([&] { return launcher_->constraint_counts().waiting == number; }));
  }
};

v1::GenerateRequest Constrained(const std::string& regex) {
  v1::GenerateRequest request;
  request.set_text("the thin hat");
  request.mutable_constraint()->set_regex(regex);
  return request;
}

TEST_F(StreamRunTest, AClientThatGoesAwayFreesItsPlace) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(1));
    return absl::OkStatus();
  };
  Start(fake);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Greedy(GreedyRequest(1, 20, kNoTokenLimit)));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  context.TryCancel();
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(Eventually([&] { return Status().scheduler().running() == 0; }));
  EXPECT_EQ(Status().scheduler().kv_blocks_used(0), 0u);
}

TEST_F(StreamRunTest, ADeadlineEndsTheCallAndFreesItsPlace) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch&) {
    absl::SleepFor(absl::Milliseconds(5));
    return absl::OkStatus();
  };
  Start(fake);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  auto reader = stub_->Generate(&context, Greedy(GreedyRequest(1, 20, kNoTokenLimit)));
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ASSERT_TRUE(Eventually([&] { return Status().scheduler().running() == 0; }));
}

TEST_F(StreamRunTest, AReaderThatStandsStillDoesNotHoldUpOthers) {
  FakeExecutorOptions fake;
  fake.limits.context_len = 1 << 16;
  fake.limits.num_blocks[kGlobalGroup] = 1 << 14;
  fake.limits.max_table_len = 1 << 17;
  Start(fake, {.max_sequences = 8, .max_rows = 64, .chunk_rows = 64}, /*max_unread_tokens=*/256);
  grpc::ClientContext still_context;
  v1::GenerateRequest endless = Greedy(GreedyRequest(1, 20, kNoTokenLimit));
  endless.set_logprobs(20);  // large messages fill the connection's window soon
  auto still = stub_->Generate(&still_context, endless);
  const EngineRequest request = GreedyRequest(2, 20, 50);
  const Answer answer = Generate(Greedy(request));
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.ids(), ExpectedTokens(request, fake.limits));
  ASSERT_TRUE(Eventually([&] { return Status().scheduler().running() == 0; }));
  v1::GenerateResponse message;
  while (still->Read(&message)) {
  }
  EXPECT_EQ(still->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(StreamRunTest, AClientThatGoesAwayCancelsItsCompilation) {
  Start();
  const constraint::HeldThreads held(constraints());
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Constrained("[a-z]{5}"));
  WaitForWaiting(1);
  context.TryCancel();
  v1::GenerateResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  WaitForWaiting(0);
  EXPECT_EQ(Unfinished(Status().scheduler()), 0u);
}

TEST_F(StreamRunTest, ADeadlineCancelsACompilation) {
  Start();
  const constraint::HeldThreads held(constraints());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  auto reader = stub_->Generate(&context, Constrained("[a-z]{5}"));
  v1::GenerateResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  WaitForWaiting(0);
}

TEST_F(StreamRunTest, DrainingEndsRequestsThatWaitForACompilation) {
  Start();
  const constraint::HeldThreads held(constraints());
  std::vector<grpc::Status> ends(2);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < ends.size(); ++i) {
    clients.emplace_back([&, i] { ends[i] = Generate(Constrained("[a-z]{5}")).status; });
  }
  WaitForWaiting(2);
  launcher_->Drain(absl::Seconds(10));
  for (std::thread& client : clients) client.join();
  for (const grpc::Status& end : ends) {
    EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(end.error_message(), HasSubstr("shutting down"));
  }
  EXPECT_EQ(Generate(Constrained("held0")).status.error_code(), grpc::StatusCode::UNAVAILABLE)
      << "a known constraint, too";
}

TEST_F(StreamRunTest, OtherRequestsGoOnWhileCompilationsWait) {
  Start();
  constraint::HeldThreads held(constraints());
  std::vector<std::thread> clients;
  std::atomic<int> served = 0;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&, i] {
      if (Generate(Constrained("[a-z]{5}" + std::to_string(i % 2))).status.ok()) ++served;
    });
  }
  WaitForWaiting(4);
  const EngineRequest request = GreedyRequest(2, 20, 50);
  EXPECT_EQ(Generate(Greedy(request)).ids(), ExpectedTokens(request, testing::ToyLimits()));
  EXPECT_TRUE(Generate(Constrained("held1")).status.ok()) << "a known one needs no thread";
  EXPECT_EQ(served, 0);
  held.Release();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served, 4);
  EXPECT_EQ(launcher_->constraint_counts().compiled, 4u) << "two held, two of two clients each";
}

TEST_F(StreamRunTest, AnErrorInMidStreamComesAfterTheTextBeforeIt) {
  FakeExecutorOptions fake;
  fake.on_step = [](const StepBatch& step) {
    return step.header.step_id > 10 ? absl::InternalError("segment 2: refused") : absl::OkStatus();
  };
  Start(fake);
  const Answer answer = Generate(Greedy(GreedyRequest(1, 5, 50)));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(answer.tokens.size(), 10u);
}

TEST_F(StreamRunTest, AFullQueueIsResourceExhausted) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  Start(fake, {.max_sequences = 1, .max_waiting = 1});
  std::vector<std::thread> clients;
  std::atomic<int> served = 0;
  for (uint32_t i = 0; i < 2; ++i) {
    clients.emplace_back([&, i] {
      if (Generate(Greedy(GreedyRequest(i, 5, 3))).status.ok()) ++served;
    });
  }
  EXPECT_TRUE(Eventually([&] { return Unfinished(Status().scheduler()) >= 2; }));
  const grpc::Status refused = Generate(Greedy(GreedyRequest(9, 5, 3))).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("queue"));
  go->Open();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served.load(), 2);
}

}  // namespace
}  // namespace tandem::gateway
