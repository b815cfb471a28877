// How `tandem serve` begins and ends: errors come at once, one cluster has a runtime
// directory, and `tandem stop` and `tandem logs` find it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/exit_codes.h"
#include "services/common/base/unique_fd.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/temporary_directory.h"
#include "tools/tandem/commands/testing/child.h"
#include "tools/tandem/serve/runtime_lock.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using ::testing::Not;

constexpr absl::Duration kStartPatience = absl::Minutes(1);

struct Ended {
  int code = 0;
  std::string output;
  std::string errors;
};

Ended RunTandem(const std::vector<std::string>& arguments) {
  Child child(arguments);
  Ended ended;
  ended.code = child.Wait();
  ended.output = child.output();
  ended.errors = child.errors();
  return ended;
}

class ServeStartTest : public ::testing::Test {
 protected:
  bool Runs() const {
    const auto serve = FindServe(folder_.path());
    return serve.ok() && serve->has_value();
  }
  // `tandem serve` on the demo model, without an NPU, and with these flags.
  std::vector<std::string> Serve(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"serve",
                                          "--model",
                                          SourcePath("models/demo/demo.Q8_0.gguf"),
                                          "--npu",
                                          "off",
                                          "--tune",
                                          "off",
                                          "--no-packed-cache",
                                          "--max-rows",
                                          "64",
                                          "--context",
                                          "128",
                                          "--runtime-dir",
                                          folder_.path()};
    const auto has = [&more](const char* flag) {
      return std::find(more.begin(), more.end(), flag) != more.end();
    };
    if (!has("--port")) more.insert(more.end(), {"--port", "0"});
    if (!has("--http")) more.insert(more.end(), {"--http", "off"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::vector<std::string> Here(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--runtime-dir", folder_.path()});
    return arguments;
  }

  static void WaitFor(const std::string& what, const std::function<bool()>& done) {
    const absl::Time until = absl::Now() + kStartPatience;
    while (!done()) {
      ASSERT_LT(absl::Now(), until) << what;
      absl::SleepFor(absl::Milliseconds(10));
    }
  }

  // A port that somebody else listens on.
  int TakePort() {
    taken_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(taken_.get(), raw, size), 0);
    EXPECT_EQ(listen(taken_.get(), 1), 0);
    EXPECT_EQ(getsockname(taken_.get(), raw, &size), 0);
    return ntohs(address.sin_port);
  }

  const TemporaryDirectory folder_;
  UniqueFd taken_;
};

TEST_F(ServeStartTest, APortInUseIsSaidByItsFlagBeforeAnythingStarts) {
  const int port = TakePort();
  for (const auto& [flag, value] : std::vector<std::pair<std::string, std::string>>{
           {"--http", absl::StrFormat("127.0.0.1:%d", port)},
           {"--port", absl::StrFormat("%d", port)}}) {
    const Ended ended = RunTandem(Serve({flag, value}));
    EXPECT_EQ(ended.code, kExitFailure);
    EXPECT_THAT(ended.errors, AllOf(HasSubstr(flag + " " + value),
                                    HasSubstr(absl::StrFormat("port %d is in use", port)),
                                    Not(HasSubstr("unix:")), Not(HasSubstr("starting"))));
  }
  const Ended metrics =
      RunTandem(Serve({"--metrics", "--metrics-port", absl::StrFormat("%d", port)}));
  EXPECT_EQ(metrics.code, kExitFailure);
  EXPECT_THAT(metrics.errors, HasSubstr("--metrics-port"));
}

TEST_F(ServeStartTest, ADeviceThatIsNotThereEndsItWithTheWorkersReason) {
  const Ended ended = RunTandem(Serve({"--gpu-device", "nosuch"}));
  EXPECT_EQ(ended.code, kExitFailure);
  EXPECT_THAT(ended.errors, AllOf(HasSubstr("gpu_worker cannot run: no Vulkan device"),
                                  Not(HasSubstr("restarting"))));
}

TEST_F(ServeStartTest, SoftwareIsNoGpuUnderRequire) {
  const Ended ended = RunTandem(Serve({"--gpu-device", "llvmpipe", "--gpu", "require"}));
  EXPECT_EQ(ended.code, kExitFailure);
  if (ended.errors.find("no Vulkan device matches") != std::string::npos) {
    GTEST_SKIP() << "no lavapipe here";
  }
  EXPECT_THAT(ended.errors, HasSubstr("is software, and --gpu=require wants a GPU"));
}

TEST_F(ServeStartTest, FlagsOfTheGatewayThatDoNotGoTogetherEndItWithItsReason) {
  const Ended ended = RunTandem(Serve({"--worker", "tls://far.example:7001"}));
  EXPECT_EQ(ended.code, kExitFailure);
  EXPECT_THAT(ended.errors, AllOf(HasSubstr("--worker tls://far.example:7001"),
                                  HasSubstr("--tls-cert"), Not(HasSubstr("restarting"))));
}

TEST_F(ServeStartTest, BeyondLoopbackItWantsKeysOrALeave) {
  const Ended ended = RunTandem(Serve({"--http", "0.0.0.0:0"}));
  EXPECT_EQ(ended.code, kExitUsage);
  EXPECT_THAT(ended.errors, AllOf(HasSubstr("--http-api-keys"), HasSubstr("--http-open")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/logs/gateway.log"));
}

TEST_F(ServeStartTest, AllFlagsCanComeFromAFile) {
  const std::string config = folder_.path() + "/serve.toml";
  std::ofstream(config) << "model = \"/nonexistent/m.gguf\"\n";
  const Ended ended = RunTandem(Here({"serve", "--config", config}));
  EXPECT_EQ(ended.code, kExitUsage);
  EXPECT_THAT(ended.errors, HasSubstr(config + ":1: model: "));
}

TEST_F(ServeStartTest, ADirectoryHasOneClusterWhichStopAndLogsFind) {
  const Ended nothing = RunTandem(Here({"stop"}));
  EXPECT_EQ(nothing.code, 3);
  EXPECT_THAT(nothing.errors, HasSubstr("not running (runtime directory " + folder_.path()));

  auto first = std::make_unique<Child>(Serve({}));
  WaitFor("a lock", [&] { return Runs(); });
  const pid_t pid = FindServe(folder_.path()).value()->pid;
  const Ended second = RunTandem(Serve({}));
  EXPECT_EQ(second.code, kExitFailure);
  EXPECT_THAT(second.errors,
              AllOf(HasSubstr(absl::StrFormat("already running, pid %d", pid)),
                    HasSubstr("runtime directory " + folder_.path()), Not(HasSubstr("ready:"))));

  // Killed: its services end by themselves, and its lock keeps nobody out.
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_EQ(first->Wait(), -SIGKILL);
  first = std::make_unique<Child>(Serve({"--log-dir", folder_.path() + "/elsewhere"}));
  WaitFor("a lock", [&] { return Runs(); });

  for (const char* service : {"gateway", "loader"}) {
    WaitFor(absl::StrFormat("a %s that listens", service), [&] {
      return RunTandem(Here({"logs", service, "-n", "1000"})).output.find("listening") !=
             std::string::npos;
    });
  }
  const Ended logs = RunTandem(Here({"logs"}));
  EXPECT_EQ(logs.code, 0) << logs.errors;
  EXPECT_THAT(logs.output, AllOf(HasSubstr("service=gateway"), HasSubstr("service=loader"),
                                 HasSubstr("service=serve event=\"service started\"")));
  const Ended absent = RunTandem(Here({"logs", "nosuch"}));
  EXPECT_EQ(absent.code, kExitFailure);
  EXPECT_THAT(absent.errors, HasSubstr("there are "));

  Child follower(Here({"logs", "--follow", "-n", "1000"}));
  EXPECT_TRUE(follower.WaitForOutput("event=\"service started\""));
  const Ended stopped = RunTandem(Here({"stop"}));
  EXPECT_EQ(stopped.code, 0) << stopped.errors;
  EXPECT_EQ(first->Wait(), 0) << first->errors();
  EXPECT_TRUE(follower.WaitForOutput("event=draining"));
  EXPECT_FALSE(Runs());
  EXPECT_EQ(RunTandem(Here({"stop"})).code, 3);
}

}  // namespace
}  // namespace tandem
