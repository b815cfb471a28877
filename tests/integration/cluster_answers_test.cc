// What the cluster answers, whatever runs where and beside what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "tests/integration/cluster_fixture.h"
#include "tools/tandem/bench/measure.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ClusterAnswersTest : public ClusterFixture {};

std::vector<v1::GenerateRequest> EightRequests() {
  std::vector<v1::GenerateRequest> requests;
  const char* prompts[] = {"The capital of",
                           "user\nWhat is the capital of France?\nmodel\n",
                           "12 * 12 =",
                           "a",
                           "Berlin is the capital of Germany. Rome is the capital of",
                           "user\nWhat is 3 plus 4?\nmodel\n",
                           "The",
                           "What is the capital of Spain? What is the capital of Sweden? What is"};
  for (uint32_t i = 0; i < 8; ++i) {
    requests.push_back(GreedyRequest(prompts[i], 24 + i));
    if (i % 2 == 0) continue;
    requests.back().mutable_sampling()->set_temperature(1.0f);
    requests.back().mutable_sampling()->set_seed(1000 + i);
  }
  return requests;
}

TEST_F(ClusterAnswersTest, TheCapitalOfJapanIsTokyo) {
  StartCluster();
  const Answer answer = Chat("What is the capital of Japan?");
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_THAT(answer.text, HasSubstr("Tokyo"));
  EXPECT_EQ(answer.finish_reason, v1::FINISH_REASON_STOP);
  EXPECT_THAT(answer.placement, HasSubstr("Attend"));
  EXPECT_THAT(answer.placement, HasSubstr("emulated"));
  EXPECT_EQ(answer.usage.device_times_size(), 2);
  for (const v1::DeviceTime& time : answer.usage.device_times()) {
    EXPECT_GT(time.seconds(), 0.0) << time.worker();
  }
}

TEST_F(ClusterAnswersTest, BenchAccountsForEveryStageOfBothDevices) {
  StartCluster();
  const auto report = Measure(
      gateway(),
      {.prompts = {24}, .tokens = {6}, .batches = {1, 2}, .depths = {40}, .repetitions = 2});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->weight_format, "q8_0");
  ASSERT_NE(report->measured_device(), nullptr) << "the GPU worker's ceilings";
  EXPECT_THAT(report->devices[1].not_measured, HasSubstr("this kind of device is not measured"));
  ASSERT_EQ(report->results.size(), 4u);
  for (const BenchResult& result : report->results) {
    SCOPED_TRACE(result.test.Name());
    EXPECT_GT(result.rate().mean, 0);
    EXPECT_GT(result.bytes, static_cast<double>(result.steps) * report->weight_bytes * 0.9);
    EXPECT_GT(result.flops, result.tokens * 1e6);
    EXPECT_GT(result.device_seconds(), 0);
    ASSERT_EQ(result.workers.size(), 2u);
    for (const BenchWorkerTime& worker : result.workers) {
      double stages = 0;
      for (const auto& [stage, seconds] : worker.stages) stages += seconds;
      // Both are counted by themselves; a step may end between the two readings.
      EXPECT_NEAR(stages / worker.device_seconds, 1, 0.5) << worker.worker;
      EXPECT_EQ(worker.stages.contains("Attend"), worker.worker == "npu0");
    }
  }
}

TEST_F(ClusterAnswersTest, BothPlacementsGiveTheSameGreedyTokens) {
  std::vector<v1::GenerateRequest> requests;
  for (const char* prompt : {"The capital of", "user\nWhat is 12 times 12?\nmodel\n", "a b c"}) {
    requests.push_back(GreedyRequest(prompt, 40));
  }
  std::vector<Answer> hybrid;
  hybrid.reserve(requests.size());
  StartCluster();
  for (const auto& request : requests) hybrid.push_back(Generate(request));
  StopCluster();
  StartCluster({.npu = false});
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answer gpu_only = Generate(requests[i]);
    ASSERT_TRUE(gpu_only.status.ok()) << gpu_only.status.error_message();
    EXPECT_THAT(gpu_only.placement, Not(HasSubstr("npu0")));
    EXPECT_EQ(gpu_only.tokens, hybrid[i].tokens) << requests[i].text();
  }
}

TEST_F(ClusterAnswersTest, EightRequestsTogetherAnswerAsEachAlone) {
  StartCluster({.gateway_flags = {"--chunk-rows", "7"}});
  const std::vector<v1::GenerateRequest> requests = EightRequests();
  std::vector<Answer> alone;
  alone.reserve(requests.size());
  for (const auto& request : requests) alone.push_back(Generate(request));
  std::vector<Answer> together(requests.size());
  std::vector<std::thread> clients;
  clients.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] { together[i] = Generate(requests[i]); });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(alone[i].status.ok()) << alone[i].status.error_message();
    ASSERT_TRUE(together[i].status.ok()) << together[i].status.error_message();
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << requests[i].text();
    EXPECT_EQ(together[i].tokens.size(), requests[i].limits().max_tokens());
  }
}

TEST_F(ClusterAnswersTest, FewKvBlocksPreemptButChangeNoAnswer) {
  StartCluster({.context_len = 120, .gateway_flags = {"--kv-tokens", "128"}});
  const std::vector<v1::GenerateRequest> requests = EightRequests();
  std::vector<Answer> alone;
  alone.reserve(requests.size());
  for (const auto& request : requests) alone.push_back(Generate(request));
  std::vector<Answer> together(requests.size());
  std::vector<std::thread> clients;
  clients.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] { together[i] = Generate(requests[i]); });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(together[i].status.ok()) << together[i].status.error_message();
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << requests[i].text();
  }
  EXPECT_GT(Status().scheduler().preemptions(), 0u);
}

TEST_F(ClusterAnswersTest, CancellationInMidStreamFreesEverything) {
  StartCluster();
  grpc::ClientContext context;
  auto reader = gateway().Generate(&context, GreedyRequest("The capital of", 400));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(Status().scheduler().running(), 1u);
  context.TryCancel();
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  WaitForStatus("free", [](const v1::GetStatusResponse& status) {
    return status.scheduler().running() == 0 && status.scheduler().waiting() == 0 &&
           status.scheduler().kv_blocks_used(0) == 0 && status.scheduler().kv_blocks_used(1) == 0;
  });
}

TEST_F(ClusterAnswersTest, BeyondTheQueueRequestsAreRefused) {
  StartCluster({.gateway_flags = {"--max-sequences", "1", "--queue", "1"}});
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < 2; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(gateway().Generate(contexts[i].get(), GreedyRequest("a", 490)));
  }
  WaitForStatus("full", [](const v1::GetStatusResponse& status) {
    return status.scheduler().running() + status.scheduler().waiting() == 2;
  });
  const Answer refused = Generate(GreedyRequest("b", 5));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Status().scheduler().max_sequences(), 1u);
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) {
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
    }
    reader->Finish();
  }
  WaitForStatus("empty", [](const v1::GetStatusResponse& status) {
    return status.scheduler().running() + status.scheduler().waiting() == 0;
  });
  EXPECT_TRUE(Generate(GreedyRequest("b", 5)).status.ok());
}

}  // namespace
}  // namespace tandem::testing
