// `tandem serve`: what it starts it keeps running, and it takes all of it along when it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "services/common/testing/eventually.h"
#include "services/gateway/http/testing/http_test_client.h"
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
    ASSERT_TRUE(Eventually([&] { return Pid(name) != -1; }));
    EXPECT_NE(Pid(name), before);
    WaitUntilReady();
  }
}

// A worker that keeps ending is started every 30 s; what runs meanwhile waits for that.
TEST_F(ServeTest, StreamsWaitForAWorkerWhoseCircuitIsOpen) {
  const auto circuit_is_open = [this] {
    return LogOf("serve").find("circuit open") != std::string::npos;
  };
  int seen = 0;
  const Answer answer = Generate(request_, [&] {
    if (++seen != 5) return;
    EXPECT_TRUE(Eventually([&] {
      const pid_t pid = Pid("gpu");
      if (pid > 0) ::kill(pid, SIGKILL);
      return circuit_is_open();
    }));
  });
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens, unfaulted_.tokens);
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

using ServePreferTest = ClusterFixture;

TEST_F(ServePreferTest, AMachineWithoutAnNpuIsAsReadyAsOneWithTheNpuOff) {
  if (std::filesystem::exists("/dev/accel")) GTEST_SKIP() << "this machine has an NPU";
  const auto start = [this](const std::string& policy) {
    const absl::Time begin = absl::Now();
    StartCluster({.serve = true, .policy = policy});
    return absl::Now() - begin;
  };
  // Whoever is first finds nothing in the processor's caches, nor in those of the driver.
  start("off");
  StopCluster();
  const absl::Duration off = start("off");
  StopCluster();
  const absl::Duration prefer = start("prefer");
  EXPECT_LT(prefer, 2 * off + absl::Seconds(2)) << "it took " << off << " with --npu=off";
  const v1::GetStatusResponse status = Status();
  ASSERT_EQ(status.workers_size(), 2);
  EXPECT_EQ(status.workers(0).state(), "ready");
  EXPECT_EQ(status.workers(1).state(), "absent");
  EXPECT_EQ(status.workers(1).name(), "npu0");
  EXPECT_THAT(status.placement_notice(), ::testing::HasSubstr("this machine has no NPU"));
  EXPECT_THAT(status.placement_notice(), ::testing::Not(::testing::HasSubstr(".sock")));
  if (status.workers(0).device().find("llvmpipe") != std::string::npos) {
    EXPECT_TRUE(status.workers(0).emulated());
    EXPECT_THAT(status.placement_notice(), ::testing::HasSubstr("gpu0 has no GPU"));
    EXPECT_THAT(status.placement(), ::testing::HasSubstr(", software)"));
  }
  EXPECT_EQ(Pid("npu"), -1) << "and it is not started again and again";
  EXPECT_TRUE(Generate(GreedyRequest("The capital of", 4)).status.ok());
}

using ServeReloadTest = ClusterFixture;

TEST_F(ServeReloadTest, AHangupHasTheGatewayReadItsKeysAgain) {
  const TemporaryDirectory folder;
  const std::string keys = folder.path() + "/keys";
  // sha256 of "one" and "two".
  std::ofstream(keys)
      << "first sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\n";
  StartCluster({.npu = false,
                .serve = true,
                .http = "127.0.0.1:0",
                .gateway_flags = {"--http-api-keys", keys}});
  const pid_t before = Pid("gateway");
  const std::string log = LogOf("gateway");
  const std::string url = "http://127.0.0.1:";
  ASSERT_NE(log.find(url), std::string::npos) << log;
  gateway::testing::HttpTestClient client(
      static_cast<uint16_t>(std::stoi(log.substr(log.find(url) + url.size()))));
  const auto status_with = [&client](const std::string& key) {
    return client.Call("GET", "/v1/models", "", "Authorization: Bearer " + key + "\r\n").status;
  };
  EXPECT_EQ(status_with("one"), 200);
  EXPECT_EQ(status_with("two"), 401);
  const auto hang_up_and_await = [this](const std::string& event) {
    ASSERT_EQ(::kill(Pid("serve"), SIGHUP), 0);
    ASSERT_TRUE(Eventually([&] { return LogOf("gateway").find(event) != std::string::npos; }))
        << LogOf("gateway");
  };
  std::ofstream(keys) << "second sha256:3fc\n";
  hang_up_and_await("line 1: 64 hexadecimal digits expected");
  EXPECT_EQ(status_with("one"), 200) << "the old keys hold";
  std::ofstream(keys)
      << "second sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\n";
  hang_up_and_await("API keys read again");
  EXPECT_EQ(status_with("one"), 401) << "on the same connection";
  EXPECT_EQ(status_with("two"), 200);
  EXPECT_EQ(Pid("gateway"), before);
}

}  // namespace
}  // namespace tandem::testing
