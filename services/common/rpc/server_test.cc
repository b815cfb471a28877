#include "services/common/rpc/server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/synchronization/notification.h"
#include "services/common/base/unique_fd.h"
#include "services/common/rpc/health_client.h"
#include "services/common/rpc/status.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

class ServerTest : public testing::Test {
 protected:
  std::string SocketPath() const { return directory_ + "/s.sock"; }

  static absl::Status Health(const std::string& target, const std::string& service = "") {
    return CheckHealth(target, service, absl::Seconds(10));
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(ServerTest, HealthFollowsTheServingStatus) {
  auto server = Server::Start({.listen = {"unix:" + SocketPath(), "127.0.0.1:0"}}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_EQ((*server)->targets().size(), 2u);
  EXPECT_NE((*server)->targets()[1], "127.0.0.1:0");
  for (const std::string& target : (*server)->targets()) {
    (*server)->SetServing(false);
    const absl::Status health = Health(target);
    EXPECT_EQ(health.code(), absl::StatusCode::kUnavailable) << target;
    EXPECT_EQ(health.message(), target + " answers that it does not serve");
    (*server)->SetServing(true);
    EXPECT_TRUE(Health(target).ok()) << target << ": " << Health(target);
  }
}

TEST_F(ServerTest, HealthOfOneServiceIsAskedByItsName) {
  const std::string target = "unix:" + SocketPath();
  grpc::Service no_methods;
  auto server = Server::Start({.listen = {target}}, {{"tandem.test.Named", &no_methods}});
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->SetServing(true);
  EXPECT_TRUE(Health(target, "tandem.test.Named").ok());
  const absl::Status unknown = Health(target, "tandem.test.Other");
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unknown.message().find("tandem.test.Other of " + target), 0u) << unknown;
  EXPECT_EQ(CheckHealth("unix:" + directory_ + "/none", "", absl::Seconds(10)).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ServerTest, TheSocketIsForItsOwnerAlone) {
  auto server = Server::Start({.listen = {"unix:" + SocketPath()}}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  struct stat info {};
  ASSERT_EQ(::stat(SocketPath().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(ServerTest, ASecondServerOnALiveSocketIsRefused) {
  auto first = Server::Start({.listen = {"unix:" + SocketPath()}}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = Server::Start({.listen = {"unix:" + SocketPath()}}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  (*first)->SetServing(true);
  EXPECT_TRUE(Health("unix:" + SocketPath()).ok()) << "the first one lives on";
  auto on_port = Server::Start({.listen = {"127.0.0.1:0"}}, {});
  ASSERT_TRUE(on_port.ok());
  EXPECT_EQ(Server::Start({.listen = {(*on_port)->targets()[0]}}, {}).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(ServerTest, OfSeveralAddressesTheOneInUseIsNamed) {
  const auto first = Server::Start({.listen = {"127.0.0.1:0"}}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string taken = (*first)->targets()[0];
  const std::string socket = "unix:" + SocketPath();
  const auto second = Server::Start({.listen = {socket, taken}}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().message().find(taken), std::string_view::npos) << second.status();
  EXPECT_EQ(second.status().message().find("unix:"), std::string_view::npos) << second.status();
}

TEST_F(ServerTest, ASocketLeftByADeadProcessIsReplaced) {
  {
    const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = UnixSocketAddress(SocketPath());
    ASSERT_EQ(
        ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(SocketPath()));
  auto server = Server::Start({.listen = {"unix:" + SocketPath()}}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->SetServing(true);
  EXPECT_TRUE(Health("unix:" + SocketPath()).ok());
}

TEST_F(ServerTest, NeverRemovesAFileThatIsNoSocket) {
  std::ofstream(SocketPath()) << "precious";
  EXPECT_EQ(Server::Start({.listen = {"unix:" + SocketPath()}}, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::is_regular_file(SocketPath()));
}

TEST_F(ServerTest, RefusesAddressesItShouldNotListenOn) {
  for (const std::string& bad : {std::string("0.0.0.0:0"), std::string("nonsense"), std::string(),
                                 "unix:" + std::string(200, 'x'), std::string("127.0.0.1:http")}) {
    EXPECT_EQ(Server::Start({.listen = {bad}}, {}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
  EXPECT_EQ(Server::Start({.listen = {"unix:" + directory_ + "/none/s"}}, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ShutdownSignalsDeathTest, TheFirstSignalIsAnEventAndTheSecondEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ShutdownSignals signals;
        ::kill(::getpid(), SIGTERM);
        if (signals.Wait() != SIGTERM) std::exit(1);
        ::kill(::getpid(), SIGINT);
        ::pause();
      },
      testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(ShutdownSignalsDeathTest, AHangupIsTheTerminalsEndIfThatHasGone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        // The leader of a new session, with a terminal of its own.
        const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
        if (::setsid() < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) std::exit(1);
        if (::open(::ptsname(terminal), O_RDWR) < 0) std::exit(2);
        ShutdownSignals signals;
        ::close(terminal);
        std::exit(signals.Wait() == SIGHUP ? 42 : 3);
      },
      testing::ExitedWithCode(42), "");
}

TEST(ShutdownSignalsDeathTest, AnyOtherHangupIsACallToReadFilesAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ShutdownSignals signals;
        ::kill(::getpid(), SIGHUP);
        absl::Notification first;
        signals.OnReload([&first] { first.Notify(); });
        first.WaitForNotification();
        absl::Notification second;
        signals.OnReload([&second] { second.Notify(); });
        ::kill(::getpid(), SIGHUP);
        second.WaitForNotification();
        signals.OnReload(nullptr);
        ::kill(::getpid(), SIGHUP);
        ::kill(::getpid(), SIGTERM);
        std::exit(signals.Wait() == SIGTERM ? 42 : 1);
      },
      testing::ExitedWithCode(42), "");
}

TEST(ShutdownSignalsTest, CanBeRequestedFromWithin) {
  ShutdownSignals signals;
  EXPECT_FALSE(signals.WaitFor(absl::Milliseconds(1)));
  signals.Request();
  EXPECT_TRUE(signals.WaitFor(absl::InfiniteDuration()));
  EXPECT_EQ(signals.Wait(), 0);
}

TEST(StatusTest, CodesAndMessagesSurviveTheRoundTrip) {
  EXPECT_TRUE(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())).ok());
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  }
}

}  // namespace
}  // namespace tandem
