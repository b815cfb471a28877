// Services that die in mid-stream.  The fixture restarts them, as a supervisor does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "services/common/testing/eventually.h"

#include "tests/integration/cluster_fixture.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

class ClusterFaultsTest : public ClusterFixture {
 protected:
  // Streams `request`; after `num_messages` messages `fault` strikes.
  Answer GenerateWithFault(const v1::GenerateRequest& request, int num_messages,
                           const std::function<void()>& fault) {
    int seen = 0;
    return Generate(request, [&] {
      if (++seen == num_messages) fault();
    });
  }
  // A stream that loses and regains `worker` says what it would have said.
  void ExpectStreamSurvives(const std::string& worker) {
    const v1::GenerateRequest request = GreedyRequest("The capital of", 120);
    const Answer unfaulted = Generate(request);
    ASSERT_TRUE(unfaulted.status.ok()) << unfaulted.status.error_message();
    const uint64_t recoveries = Status().recoveries();
    const Answer answer = GenerateWithFault(request, 5, [&] {
      KillService(worker);
      StartService(worker);
    });
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.tokens, unfaulted.tokens);
    EXPECT_EQ(answer.text, unfaulted.text);
    EXPECT_EQ(Status().recoveries(), recoveries + 1);
  }
};

TEST_F(ClusterFaultsTest, AStreamSurvivesTheDeathOfTheGpuWorker) {
  StartCluster();
  ExpectStreamSurvives("gpu");
}

TEST_F(ClusterFaultsTest, AStreamSurvivesTheDeathOfTheNpuWorker) {
  StartCluster();
  ExpectStreamSurvives("npu");
}

TEST_F(ClusterFaultsTest, AStreamSurvivesTheDeathOfTheOnlyWorker) {
  StartCluster({.npu = false});
  ExpectStreamSurvives("gpu");
}

TEST_F(ClusterFaultsTest, SampledStreamsSurviveToo) {
  StartCluster();
  v1::GenerateRequest request = GreedyRequest("What is the capital", 80);
  request.mutable_sampling()->set_temperature(1.0f);
  request.mutable_sampling()->set_seed(7);
  const Answer unfaulted = Generate(request);
  const Answer answer = GenerateWithFault(request, 5, [&] {
    KillService("npu");
    StartService("npu");
  });
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens, unfaulted.tokens);
}

TEST_F(ClusterFaultsTest, AStreamSurvivesAWorkerThatStandsStill) {
  StartCluster({.gateway_flags = {"--segment-deadline", "2"}});
  const v1::GenerateRequest request = GreedyRequest("The capital of", 60);
  const Answer unfaulted = Generate(request);
  ASSERT_TRUE(unfaulted.status.ok()) << unfaulted.status.error_message();
  const Answer answer = GenerateWithFault(request, 5, [&] {
    ::kill(Pid("gpu"), SIGSTOP);
    WaitForStatus("recovering", [](const auto& status) { return status.state() == "recovering"; });
    ::kill(Pid("gpu"), SIGCONT);  // late, with a plan of an epoch that has passed
  });
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens, unfaulted.tokens);
}

TEST_F(ClusterFaultsTest, AWorkerDeadBetweenRequestsCostsNone) {
  StartCluster();
  const v1::GenerateRequest request = GreedyRequest("The capital of", 20);
  const Answer first = Generate(request);
  KillService("gpu");
  StartService("gpu");
  const Answer second = Generate(request);
  ASSERT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_EQ(second.tokens, first.tokens);
}

TEST_F(ClusterFaultsTest, AWorkerThatDiesWhileNothingRunsIsReplacedWithoutARequest) {
  StartCluster();
  KillService("npu");
  StartService("npu");
  WaitForStatus("recovered", [](const v1::GetStatusResponse& status) {
    return status.recoveries() == 1 && status.state() == "ready";
  });
}

TEST_F(ClusterFaultsTest, AWorkerThatStaysAwayIsAClearErrorAndItsReturnIsEnough) {
  StartCluster({.gateway_flags = {"--worker-wait", "2"}});
  const Answer lost =
      GenerateWithFault(GreedyRequest("The capital of", 200), 3, [&] { KillService("npu"); });
  EXPECT_EQ(lost.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(lost.status.error_message(), HasSubstr("npu"));
  EXPECT_EQ(Status().state(), "recovering");
  StartService("npu");
  WaitForStatus("ready", [](const auto& status) { return status.state() == "ready"; });
  EXPECT_TRUE(Generate(GreedyRequest("The capital of", 5)).status.ok());
}

TEST_F(ClusterFaultsTest, StreamsDoNotNoticeTheDeathOfTheLoader) {
  StartCluster();
  const v1::GenerateRequest request = GreedyRequest("The capital of", 60);
  const Answer unfaulted = Generate(request);
  const Answer answer = GenerateWithFault(request, 3, [&] { KillService("loader"); });
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens, unfaulted.tokens);
  EXPECT_EQ(Status().recoveries(), 0u);
  // Nor do later ones, and once the loader is back a worker may die as well.
  EXPECT_EQ(Generate(request).tokens, unfaulted.tokens);
  StartService("loader");
  const Answer after = GenerateWithFault(request, 3, [&] {
    KillService("gpu");
    StartService("gpu");
  });
  ASSERT_TRUE(after.status.ok()) << after.status.error_message();
  EXPECT_EQ(after.tokens, unfaulted.tokens);
}

TEST_F(ClusterFaultsTest, ASignalDrainsTheGatewayWithoutCuttingAStream) {
  StartCluster();
  const Answer answer = GenerateWithFault(GreedyRequest("The capital of", 60), 2,
                                          [&] { ::kill(Pid("gateway"), SIGTERM); });
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens.size(), 60u);
  EXPECT_EQ(EndOf("gateway"), 0);
}

TEST_F(ClusterFaultsTest, FiftyDeathsLeaveNoRegionAndNoDescriptorBehind) {
  StartCluster();
  const v1::GenerateRequest request = GreedyRequest("The capital of", 16);
  const Answer unfaulted = Generate(request);
  // The first loss opens all that is opened once.
  for (const char* worker : {"gpu", "npu"}) {
    KillService(worker);
    StartService(worker);
    ASSERT_TRUE(Generate(request).status.ok());
  }
  const uint32_t regions = NumRegions();
  const size_t loader_descriptors = NumDescriptors("loader");
  const size_t gateway_descriptors = NumDescriptors("gateway");
  for (int i = 0; i < 50; ++i) {
    const std::string worker = i % 2 == 0 ? "gpu" : "npu";
    const Answer answer = GenerateWithFault(request, 1 + i % 7, [&] {
      KillService(worker);
      StartService(worker);
    });
    ASSERT_TRUE(answer.status.ok()) << "death " << i << ": " << answer.status.error_message();
    ASSERT_EQ(answer.tokens, unfaulted.tokens) << "death " << i;
  }
  // Leases of the dead end when their connections do.
  EXPECT_TRUE(Eventually([&] {
    return NumRegions() <= regions && NumDescriptors("loader") <= loader_descriptors &&
           NumDescriptors("gateway") <= gateway_descriptors;
  }));
  EXPECT_EQ(NumRegions(), regions);
  EXPECT_LE(NumDescriptors("loader"), loader_descriptors);
  EXPECT_LE(NumDescriptors("gateway"), gateway_descriptors);
}

}  // namespace
}  // namespace tandem::testing
