#include "services/common/base/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(DescriptorsTest, TheSoftLimitIsRaisedToTheHardOne) {
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const rlimit low{.rlim_cur = 200, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto raised = RaiseDescriptorLimit();
  rlimit now{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &now), 0);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  ASSERT_TRUE(raised.ok()) << raised.status();
  EXPECT_EQ(*raised, std::min<uint64_t>(old.rlim_max, 65536));
  EXPECT_EQ(now.rlim_cur, *raised);
  EXPECT_EQ(now.rlim_max, old.rlim_max);
}

TEST(DescriptorsTest, ALimitThatIsHighAlreadyStays) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const auto raised = RaiseDescriptorLimit();
  ASSERT_TRUE(raised.ok()) << raised.status();
  EXPECT_GE(*raised, limit.rlim_cur);
}

TEST(DescriptorsTest, ConnectionsLeaveTheReserveAndTheOtherPortTheirs) {
  EXPECT_EQ(*ConnectionsWithin(65536, 0), 4096u);
  EXPECT_EQ(*ConnectionsWithin(1024, 0), 448u);
  EXPECT_EQ(*ConnectionsWithin(256, 0), 64u);
  EXPECT_EQ(*ConnectionsWithin(160, 0), 16u);
  EXPECT_EQ(*ConnectionsWithin(65536, 10000), 10000u);
  EXPECT_EQ(*ConnectionsWithin(1024, 448), 448u);
}

TEST(DescriptorsTest, GrpcConnectionsFitTheirHalf) {
  EXPECT_EQ(*GrpcConnectionsWithin(65536, 0), 512u);
  EXPECT_EQ(*GrpcConnectionsWithin(1024, 0), 149u);
  EXPECT_EQ(*GrpcConnectionsWithin(256, 0), 21u);
  EXPECT_EQ(*GrpcConnectionsWithin(160, 0), 5u);
  EXPECT_EQ(*GrpcConnectionsWithin(1024, 100), 100u);
  EXPECT_THAT(
      GrpcConnectionsWithin(1024, 150).status().message(),
      HasSubstr("--grpc-connections 150: the limit of 1024 open files has room for at most 149"));
}

TEST(DescriptorsTest, ALimitThatIsTooLowIsRefusedWithTheWayOut) {
  EXPECT_THAT(ConnectionsWithin(159, 0).status().message(),
              HasSubstr("the limit of open files is 159 and serving needs at least 160"));
  EXPECT_THAT(ConnectionsWithin(0, 0).status().message(), HasSubstr("LimitNOFILE="));
  EXPECT_THAT(
      ConnectionsWithin(1024, 449).status().message(),
      HasSubstr("--http-connections 449: the limit of 1024 open files has room for at most 448"));
}

}  // namespace
}  // namespace tandem
