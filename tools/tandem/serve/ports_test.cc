#include "tools/tandem/serve/ports.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/unique_fd.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A listening socket on a port of the system's choice.
class TakenPort {
 public:
  TakenPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_.get(), 1), 0);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  int port() const { return port_; }

 private:
  UniqueFd fd_;
  int port_ = 0;
};

TEST(PortsTest, APortInUseIsNamedWithItsFlagAndItsHolder) {
  const TakenPort taken;
  const std::string address = absl::StrFormat("127.0.0.1:%d", taken.port());
  const absl::Status status = CheckPorts({{"--http " + address, address}});
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--http " + address), HasSubstr("in use by"),
                    HasSubstr(absl::StrFormat("(pid %d)", getpid()))));
  EXPECT_FALSE(CheckPorts({{"--http", absl::StrFormat("0.0.0.0:%d", taken.port())}}).ok());
}

TEST(PortsTest, APortOfAServiceThatEndsIsWaitedFor) {
  auto taken = std::make_unique<TakenPort>();
  const std::string address = absl::StrFormat("127.0.0.1:%d", taken->port());
  EXPECT_FALSE(AwaitPorts({{"--http", address}}, absl::Milliseconds(10)).ok());
  std::thread ending([&taken] {
    absl::SleepFor(absl::Milliseconds(50));
    taken.reset();
  });
  EXPECT_TRUE(AwaitPorts({{"--http", address}}, absl::Seconds(20)).ok());
  ending.join();
}

TEST(PortsTest, FreePortsAreGivenBack) {
  int port = 0;
  { port = TakenPort().port(); }
  const std::string address = absl::StrFormat("127.0.0.1:%d", port);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(
        CheckPorts({{"--http", address}, {"--port", "127.0.0.1:0"}, {"--x", "[::1]:0"}}).ok());
  }
}

TEST(PortsTest, TwoFlagsMayNotWantOnePort) {
  EXPECT_THAT(
      std::string(CheckPorts({{"--http a", "127.0.0.1:0"}, {"--port 1", "127.0.0.1:0"}}).message()),
      "");
  int port = 0;
  { port = TakenPort().port(); }
  const std::string address = absl::StrFormat("127.0.0.1:%d", port);
  const absl::Status status = CheckPorts({{"--http", address}, {"--port", address}});
  EXPECT_THAT(std::string(status.message()), HasSubstr("--http and --port want the same port"));
}

TEST(PortsTest, AnAddressOfAnotherMachineIsRefused) {
  EXPECT_EQ(CheckPorts({{"--http", "192.0.2.1:8080"}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckPorts({{"--http", "nonsense:8080"}}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PortsTest, AClusterWantsWhatItsFlagsSay) {
  ClusterOptions options;
  options.npu = NpuPolicy::kOff;
  EXPECT_TRUE(WantedPorts(options).empty());
  options.http = "0.0.0.0:8080";
  options.port = 50051;
  options.metrics = true;
  std::string addresses;
  for (const WantedPort& port : WantedPorts(options)) addresses += port.address + " ";
  EXPECT_EQ(addresses,
            "0.0.0.0:8080 127.0.0.1:50051 127.0.0.1:9464 127.0.0.1:9465 127.0.0.1:9467 "
            "127.0.0.1:9468 ");
}

TEST(PortsTest, PortZeroIsChosenOnceAndFree) {
  const auto chosen = ChoosePort("--http", "127.0.0.1:0");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_TRUE(chosen->starts_with("127.0.0.1:")) << *chosen;
  EXPECT_FALSE(chosen->ends_with(":0")) << *chosen;
  EXPECT_TRUE(CheckPorts({{"--http " + *chosen, *chosen}}).ok()) << "the gateway can have it";
  EXPECT_EQ(ChoosePort("--http", "127.0.0.1:8080").value(), "127.0.0.1:8080");
  EXPECT_EQ(ChoosePort("--http", "off").value(), "off");
}

}  // namespace
}  // namespace tandem
