// Prompts on one worker, decoding on another: answers are those of one worker that does both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/integration/cluster_fixture.h"

namespace tandem::testing {
namespace {

class ClusterPhasesTest : public ClusterFixture {
 protected:
  void StartPhases(std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {"--replicas", "2", "--prompt-replicas", "1"});
    StartCluster({.second_gpu = true, .npu = false, .gateway_flags = flags});
    AwaitReplica(0);
    AwaitReplica(1);
  }
  void AwaitReplica(int replica) {
    WaitForStatus("replica " + std::to_string(replica), [&](const auto& status) {
      return status.replicas_size() == 2 && status.replicas(replica).state() == "ready";
    });
  }
  std::vector<Answer> AskTogether(const std::vector<v1::GenerateRequest>& requests) {
    std::vector<Answer> answers(requests.size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < requests.size(); ++i) {
      clients.emplace_back([&, i] { answers[i] = Generate(requests[i]); });
    }
    for (std::thread& client : clients) client.join();
    return answers;
  }
};

// Long enough that a replica for decoding does not compute them itself; no two begin alike.
std::vector<v1::GenerateRequest> LongPrompts(int count) {
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    std::string prompt = "Item " + std::to_string(i) + ":";
    for (int word = 0; word < 60 + 17 * i; ++word) {
      prompt += word % 3 == 0 ? " the capital" : word % 3 == 1 ? " of a town" : " near the sea,";
    }
    requests.push_back(GreedyRequest(prompt, 60));
    if (i % 2 == 0) continue;
    requests.back().mutable_sampling()->set_temperature(1.0f);
    requests.back().mutable_sampling()->set_seed(static_cast<uint64_t>(i));
  }
  return requests;
}

TEST_F(ClusterPhasesTest, AnswersAreThoseOfOneWorkerWhateverTheChunksAndWhoeverDies) {
  const std::vector<v1::GenerateRequest> requests = LongPrompts(6);
  StartCluster({.npu = false});
  std::vector<Answer> alone(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    alone[i] = Generate(requests[i]);
    ASSERT_TRUE(alone[i].status.ok()) << alone[i].status.error_message();
  }
  StopCluster();
  const auto expect_same = [&](const std::vector<Answer>& answers, const std::string& when) {
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(answers[i].status.ok()) << when << answers[i].status.error_message();
      EXPECT_EQ(answers[i].tokens, alone[i].tokens) << "stream " << i << " " << when;
      EXPECT_EQ(answers[i].text, alone[i].text) << "stream " << i << " " << when;
    }
  };
  for (const char* chunk : {"512", "37"}) {
    StartPhases({"--chunk-rows", chunk});
    expect_same(AskTogether(requests), std::string("with chunks of ") + chunk);
    const v1::GetStatusResponse status = Status();
    EXPECT_EQ(status.replicas(0).role(), "prompts");
    EXPECT_GT(status.replicas(0).handed_over(), 0u);
    EXPECT_EQ(status.replicas(0).handed_over(), status.replicas(0).moved_away());
    EXPECT_GT(status.replicas(1).kv_received_bytes(), 0u);
    for (const std::string worker : {"gpu", "gpu1"}) {
      std::thread killer([&] {
        absl::SleepFor(absl::Milliseconds(200));
        KillService(worker);
        StartService(worker);
      });
      expect_same(AskTogether(requests), "while " + worker + " dies");
      killer.join();
      AwaitReplica(worker == "gpu" ? 0 : 1);
    }
    StopCluster();
  }
}

TEST_F(ClusterPhasesTest, KvIsConvertedBetweenFormats) {
  StartCluster({.second_gpu = true,
                .npu = false,
                .replica_words = {"role=prompts kv=f16", "role=decode kv=q8_0"}});
  AwaitReplica(0);
  AwaitReplica(1);
  for (const Answer& answer : AskTogether(LongPrompts(3))) {
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.tokens.size(), 60u);
  }
  const v1::GetStatusResponse status = Status();
  EXPECT_GT(status.replicas(0).handed_over(), 0u);
  // 34 bytes of q8_0 hold what takes 64 in f16.
  EXPECT_NEAR(static_cast<double>(status.replicas(1).kv_received_bytes()) /
                  static_cast<double>(status.replicas(0).kv_sent_bytes()),
              34.0 / 64.0, 0.02);
}

}  // namespace
}  // namespace tandem::testing
