#include "tools/tandem/address.h"

#include "services/common/testing/temporary_directory.h"
#include "tools/tandem/api_client.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tandem {
namespace {

constexpr char kNone[] = "/nonexistent/gateway.sock";

class AddressTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("TANDEM_ADDRESS");
    unsetenv("XDG_RUNTIME_DIR");
  }
};

TEST_F(AddressTest, IsWhatTheEnvironmentSays) {
  setenv("TANDEM_ADDRESS", "127.0.0.1:50051", 1);
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(DefaultGatewayAddress(), "127.0.0.1:50051");
}

TEST_F(AddressTest, IsInTheRuntimeDirectory) {
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(DefaultGatewayAddress(kNone), "unix:/run/user/7/tandem/gateway.sock");
}

TEST_F(AddressTest, IsTheSystemsWhereOneRunsAndNoneOfOnesOwn) {
  const TemporaryDirectory temporary;
  const std::string directory = temporary.path(), system = directory + "/system.sock";
  std::ofstream(system) << "stands for a socket";
  setenv("XDG_RUNTIME_DIR", directory.c_str(), 1);
  // Root may open the socket, on which it is seen who listens.
  EXPECT_EQ(DefaultGatewayAddress(system),
            geteuid() == 0 ? "unix:" + system : std::string("127.0.0.1:50051"));
  std::filesystem::create_directory(directory + "/tandem");
  std::ofstream(directory + "/tandem/gateway.sock") << "stands for one, too";
  EXPECT_EQ(DefaultGatewayAddress(system), "unix:" + directory + "/tandem/gateway.sock");
}

TEST_F(AddressTest, IsTheUsersOwnUnderTmpWithoutOne) {
  setenv("XDG_RUNTIME_DIR", "", 1);
  EXPECT_EQ(DefaultGatewayAddress(kNone),
            "unix:/tmp/tandem-" + std::to_string(getuid()) + "/gateway.sock");
}

// As /tmp/tandem-0 is when another user has made it first.
TEST_F(AddressTest, AnotherUsersFolderHasNoGatewayForUsUnlessThatUserIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's folder";
  const TemporaryDirectory temporary;
  std::filesystem::permissions(temporary.path(), std::filesystem::perms(01777));
  const std::string folder = temporary.path() + "/tandem-0";
  std::filesystem::create_directory(folder);
  ASSERT_EQ(chown(folder.c_str(), 65534, 65534), 0);
  GatewayAddress address("unix:" + folder + "/gateway.sock");
  const absl::Status refused = OpenGateway(address).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(refused.message().find("--trust-uid"), absl::string_view::npos) << refused;
  address.trusted_uid = 65534;
  EXPECT_TRUE(OpenGateway(address).ok());
}

}  // namespace
}  // namespace tandem
