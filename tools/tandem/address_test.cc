#include "tools/tandem/address.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace tandem {
namespace {

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
  EXPECT_EQ(DefaultGatewayAddress(), "unix:/run/user/7/tandem/gateway.sock");
}

TEST_F(AddressTest, IsTheUsersOwnUnderTmpWithoutOne) {
  setenv("XDG_RUNTIME_DIR", "", 1);
  EXPECT_EQ(DefaultGatewayAddress(),
            "unix:/tmp/tandem-" + std::to_string(getuid()) + "/gateway.sock");
}

}  // namespace
}  // namespace tandem
