#include "services/gateway/gateway_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GatewayFlagsTest : public ::testing::Test {
 protected:
  GatewayFlagsTest() { AddGatewayFlags(app_, flags_); }

  // With the flags that are required.
  absl::Status Parse(std::vector<std::string> arguments) {
    for (const char* argument :
         {"--loader", "unix:/loader.sock", "--worker", "unix:/gpu0.sock", "--model", "m"}) {
      arguments.emplace_back(argument);
    }
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the end
    try {
      app_.parse(arguments);
    } catch (const CLI::ParseError& error) {
      return absl::InvalidArgumentError(error.what());
    }
    return FinishGatewayFlags(flags_);
  }

  CLI::App app_;
  GatewayFlags flags_;
};

TEST_F(GatewayFlagsTest, APortIsServedBesideTheAddresses) {
  ASSERT_TRUE(Parse({"--listen", "unix:/gateway.sock", "--port", "50051"}).ok());
  EXPECT_THAT(flags_.server.listen, ElementsAre("unix:/gateway.sock", "127.0.0.1:50051"));
}

TEST_F(GatewayFlagsTest, HostsOfPicturesAreAListThatIsChecked) {
  ASSERT_TRUE(Parse({"--port", "1", "--fetch-images", "a.example,*.b.example:8443"}).ok());
  EXPECT_THAT(flags_.http.fetch_images, ElementsAre("a.example", "*.b.example:8443"));
  EXPECT_THAT(
      std::string(Parse({"--port", "1", "--fetch-images", "a.example,https://b"}).message()),
      HasSubstr("'https://b' is no host"));
}

// As with tandem serve.
TEST_F(GatewayFlagsTest, PortZeroLeavesTheAddressesAlone) {
  const absl::Status status = Parse({"--listen", "unix:/gateway.sock", "--port", "0"});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(flags_.server.listen, ElementsAre("unix:/gateway.sock"));
}

TEST_F(GatewayFlagsTest, AnyFreePortIsAnAddress) {
  ASSERT_TRUE(Parse({"--listen", "127.0.0.1:0"}).ok());
  EXPECT_THAT(flags_.server.listen, ElementsAre("127.0.0.1:0"));
}

TEST_F(GatewayFlagsTest, SomewhereMustBeServed) {
  const absl::Status status = Parse({"--port", "0"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--listen unix:PATH"));
}

TEST_F(GatewayFlagsTest, PortsEndAt65535) {
  EXPECT_THAT(std::string(Parse({"--port", "65536"}).message()), HasSubstr("--port"));
}

}  // namespace
}  // namespace tandem::gateway
