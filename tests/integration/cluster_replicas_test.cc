// One model on two workers side by side, and what becomes of the streams when one of them dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/integration/cluster_fixture.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

class ClusterReplicasTest : public ClusterFixture {
 protected:
  void StartReplicas() {
    StartCluster({.second_gpu = true, .npu = false, .gateway_flags = {"--replicas", "2"}});
    AwaitReplica(1, "ready");
  }
  void AwaitReplica(int replica, const std::string& state) {
    WaitForStatus("replica " + std::to_string(replica) + " " + state, [&](const auto& status) {
      return status.replicas_size() == 2 && status.replicas(replica).state() == state;
    });
  }
};

std::vector<v1::GenerateRequest> MixedRequests(int count) {
  const char* const prompts[] = {"The capital of", "Once upon a time",
                                 "A list of colours:", "Two and two are"};
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(GreedyRequest(prompts[i % 4], 60));
    if (i % 2 == 0) continue;
    requests.back().mutable_sampling()->set_temperature(1.0f);
    requests.back().mutable_sampling()->set_seed(static_cast<uint64_t>(i));
  }
  return requests;
}

TEST_F(ClusterReplicasTest, BothServeAndTheAnswersAreThoseOfOne) {
  StartReplicas();
  const v1::GetStatusResponse status = Status();
  EXPECT_THAT(status.placement(), HasSubstr("gpu0"));
  EXPECT_THAT(status.placement(), HasSubstr("gpu1"));
  EXPECT_THAT(status.replicas(1).workers(), ::testing::ElementsAre("gpu1"));
  const std::vector<v1::GenerateRequest> requests = MixedRequests(8);
  std::vector<Answer> alone(requests.size()), together(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) alone[i] = Generate(requests[i]);
  std::set<uint32_t> replicas;
  // A worker that was slow for a while, on a busy machine, gets no requests until its measurements
  // count for less.
  for (int round = 0; round < 20 && replicas.size() < 2; ++round) {
    std::vector<std::thread> clients;
    for (size_t i = 0; i < requests.size(); ++i) {
      clients.emplace_back([&, i] { together[i] = Generate(requests[i]); });
    }
    for (std::thread& client : clients) client.join();
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(together[i].status.ok()) << together[i].status.error_message();
      EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
      replicas.insert(together[i].usage.replica());
    }
  }
  EXPECT_EQ(replicas.size(), 2u);
}

TEST_F(ClusterReplicasTest, WorkersThatDieInTurnCostNoStream) {
  StartReplicas();
  const std::vector<v1::GenerateRequest> requests = MixedRequests(8);
  std::vector<Answer> alone(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) alone[i] = Generate(requests[i]);
  for (int round = 0; round < 4; ++round) {
    const int replica = round % 2;
    const std::string worker = replica == 0 ? "gpu" : "gpu1";
    std::vector<Answer> answers(requests.size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < requests.size(); ++i) {
      clients.emplace_back([&, i] { answers[i] = Generate(requests[i]); });
    }
    absl::SleepFor(absl::Milliseconds(150));
    KillService(worker);
    // It is away until every stream has ended: they go on at the other.
    for (std::thread& client : clients) client.join();
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.error_message();
      EXPECT_EQ(answers[i].tokens, alone[i].tokens) << "stream " << i << " of round " << round;
      EXPECT_EQ(answers[i].text, alone[i].text);
    }
    StartService(worker);
    AwaitReplica(replica, "ready");
  }
  const v1::GetStatusResponse status = Status();
  EXPECT_GT(status.replicas(0).moved_away() + status.replicas(1).moved_away(), 0u);
  EXPECT_EQ(status.recoveries(), 4u);
}

// As pods of a StatefulSet that is scaled.
TEST_F(ClusterReplicasTest, WorkersThatAreFoundByNameJoinAndLeave) {
  StartCluster({.npu = false, .by_name = true});
  EXPECT_THAT(Status().placement(), HasSubstr("gpu1"));
  const v1::GenerateRequest request = GreedyRequest("The capital of", 40);
  const Answer expected = Generate(request);
  ASSERT_TRUE(expected.status.ok()) << expected.status.error_message();
  StartService("gpu2");
  AwaitReplica(1, "ready");

  std::atomic<bool> left = false;
  int answers = 0;
  std::thread client([&] {
    while (!left) {
      const Answer answer = Generate(request);
      EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
      EXPECT_EQ(answer.tokens, expected.tokens);
      ++answers;
      absl::SleepFor(absl::Milliseconds(200));
    }
  });
  absl::SleepFor(absl::Milliseconds(100));
  KillService("gpu2");
  RemoveSocket("gpu2");
  WaitForStatus("one replica", [](const auto& status) {
    return status.replicas_size() == 1 && status.replicas(0).workers(0) == "gpu1";
  });
  left = true;
  client.join();
  EXPECT_GT(answers, 0);
}

}  // namespace
}  // namespace tandem::testing
