// `tandem serve`: what it starts it keeps running, and it takes all of it along when it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "absl/time/clock.h"
#include "tests/integration/cluster_fixture.h"

namespace tandem::testing {
namespace {

class ServeTest : public ClusterFixture {
 protected:
  void SetUp() override {
    StartCluster({.serve = true});
    unfaulted_ = Generate(request_);
    ASSERT_TRUE(unfaulted_.status.ok()) << unfaulted_.status.error_message();
  }
  // Streams; after `num_messages` messages the service is killed.
  Answer GenerateAndKill(const std::string& name, int num_messages) {
    int seen = 0;
    return Generate(request_, [&] {
      if (++seen == num_messages) KillService(name);
    });
  }
  // Waits until the gateway that runs now answers.
  void WaitUntilReady() {
    WaitForStatus("ready", [](const auto& status) { return status.state() == "ready"; });
  }

  const v1::GenerateRequest request_ = GreedyRequest("The capital of", 60);
  Answer unfaulted_;
};

TEST_F(ServeTest, StreamsSurviveWorkersAndLoaderBecauseTheyAreRestarted) {
  for (const char* name : {"gpu", "npu", "loader", "gpu", "npu"}) {
    SCOPED_TRACE(name);
    const pid_t before = Pid(name);
    const Answer answer = GenerateAndKill(name, 5);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.tokens, unfaulted_.tokens);
    while (Pid(name) == -1) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_NE(Pid(name), before);
    WaitUntilReady();
  }
}

TEST_F(ServeTest, TheGatewaysDeathIsUnavailableAndTheNextRequestWorks) {
  const Answer lost = GenerateAndKill("gateway", 5);
  EXPECT_EQ(lost.status.error_code(), grpc::StatusCode::UNAVAILABLE) << lost.status.error_message();
  WaitUntilReady();
  const Answer answer = Generate(request_);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens, unfaulted_.tokens);
}

TEST_F(ServeTest, ItsEndIsTheEndOfEveryService) {
  std::vector<pid_t> pids;
  for (const char* name : {"loader", "gpu", "npu", "gateway"}) pids.push_back(Pid(name));
  EXPECT_THAT(pids, ::testing::Each(::testing::Gt(0)));
  ASSERT_EQ(::kill(Pid("serve"), SIGTERM), 0);
  EXPECT_EQ(EndOf("serve"), 0);
  for (const pid_t pid : pids) EXPECT_EQ(::kill(pid, 0), -1) << pid;
}

}  // namespace
}  // namespace tandem::testing
