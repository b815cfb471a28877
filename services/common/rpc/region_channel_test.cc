#include "services/common/rpc/region_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "services/common/base/shared_memory.h"
#include "services/common/rpc/region_wire.h"
#include "services/common/rpc/unix_socket.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

class RegionChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.socket_path = directory_ + "/loader.sock.fds";
    memory_ = CreateSharedMemory("region", 4096).value();
  }
  void TearDown() override { server_.reset(); }

  void Start() {
    auto server = RegionServer::Start(
        options_, [this](const RegionRequest& request) -> absl::StatusOr<Region> {
          if (request.lease_token != token_) return absl::NotFoundError("no such lease");
          return Region{UniqueFd(::fcntl(memory_.get(), F_DUPFD_CLOEXEC, 0)), 4096};
        });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  UniqueFd Connect() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto address = UnixSocketAddress(options_.socket_path).value();
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const timeval limit = {10, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
  }

  // Sends raw bytes, with descriptors if asked, and returns the code of the reply.
  absl::StatusCode Raw(const void* bytes, size_t size, const std::vector<int>& fds = {}) const {
    const UniqueFd fd = Connect();
    iovec part = {const_cast<void*>(bytes), size};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    EXPECT_EQ(::sendmsg(fd.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(size));
    region_wire::Reply reply;
    const ssize_t received = ::recv(fd.get(), &reply, sizeof(reply), 0);
    EXPECT_GE(received, static_cast<ssize_t>(sizeof(reply.header)));
    return static_cast<absl::StatusCode>(reply.header.code);
  }

  const std::string token_ = std::string(31, 't') + '\0';
  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
  RegionServer::Options options_;
  UniqueFd memory_;
  std::unique_ptr<RegionServer> server_;
};

TEST_F(RegionChannelTest, ADescriptorOfTheSameObjectArrivesCloseOnExec) {
  Start();
  auto region = FetchRegion(options_.socket_path, {token_, RegionKind::kWeights, 0});
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(region->bytes, 4096u);
  EXPECT_NE(::fcntl(region->fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  struct stat ours {
  }, theirs{};
  ASSERT_EQ(::fstat(memory_.get(), &ours), 0);
  ASSERT_EQ(::fstat(region->fd.get(), &theirs), 0);
  EXPECT_EQ(ours.st_ino, theirs.st_ino);
  ASSERT_EQ(::stat(options_.socket_path.c_str(), &ours), 0);
  EXPECT_EQ(ours.st_mode & 0777, 0600u);
}

TEST_F(RegionChannelTest, RefusalsCarryCodeAndReason) {
  Start();
  const auto refused =
      FetchRegion(options_.socket_path, {std::string(32, 'x'), RegionKind::kWeights, 0});
  EXPECT_EQ(refused.status(), absl::NotFoundError("no such lease"));
  EXPECT_EQ(FetchRegion(options_.socket_path, {"short", RegionKind::kWeights, 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RegionChannelTest, NobodyListeningIsUnavailable) {
  EXPECT_EQ(FetchRegion(options_.socket_path, {token_, RegionKind::kWeights, 0}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(RegionChannelTest, ForeignUsersAreRefused) {
  options_.allowed_uid = ::geteuid() + 1;
  Start();
  EXPECT_EQ(FetchRegion(options_.socket_path, {token_, RegionKind::kWeights, 0}).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(RegionChannelTest, MalformedRequestsAreRefusedAndTheServerLivesOn) {
  Start();
  region_wire::Request good;
  std::memcpy(good.token, token_.data(), token_.size());
  EXPECT_EQ(Raw(&good, sizeof(good)), absl::StatusCode::kOk);
  EXPECT_EQ(Raw("x", 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Raw(&good, sizeof(good) - 1), absl::StatusCode::kInvalidArgument);
  char longer[sizeof(good) + 1] = {};
  std::memcpy(longer, &good, sizeof(good));
  EXPECT_EQ(Raw(longer, sizeof(longer)), absl::StatusCode::kInvalidArgument);
  region_wire::Request bad = good;
  bad.magic ^= 1;
  EXPECT_EQ(Raw(&bad, sizeof(bad)), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.version = 2;
  EXPECT_EQ(Raw(&bad, sizeof(bad)), absl::StatusCode::kFailedPrecondition);
  bad = good;
  bad.kind = kNumRegionKinds;
  EXPECT_EQ(Raw(&bad, sizeof(bad)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Raw(&good, sizeof(good)), absl::StatusCode::kOk);
}

TEST_F(RegionChannelTest, DescriptorsSentToTheServerAreNotKept) {
  Start();
  const size_t before = OpenDescriptors();
  region_wire::Request packet;
  std::memcpy(packet.token, token_.data(), token_.size());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Raw(&packet, sizeof(packet), std::vector<int>(30, memory_.get())),
              absl::StatusCode::kInvalidArgument);
  }
  server_.reset();  // joins, so that its last connection is closed
  EXPECT_LE(OpenDescriptors(), before);
}

TEST_F(RegionChannelTest, FiftyFetchesLeaveNoDescriptorBehind) {
  Start();
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(FetchRegion(options_.socket_path, {token_, RegionKind::kWeights, 0}).ok());
  }
  server_.reset();
  EXPECT_LE(OpenDescriptors(), before);
}

TEST_F(RegionChannelTest, SilentPeersAreDroppedToMakeRoomForOthers) {
  options_.max_connections = 3;
  options_.idle_timeout = absl::Milliseconds(50);
  Start();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(Connect());
  EXPECT_TRUE(FetchRegion(options_.socket_path, {token_, RegionKind::kWeights, 0}).ok());
}

TEST_F(RegionChannelTest, AProcessOutOfDescriptorsIsToldSo) {
  Start();
  const auto fetch_with_one_descriptor_left = [this] {
    const int lowest_free = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
    ::close(lowest_free);
    const auto limit = static_cast<rlim_t>(lowest_free) + 1;
    const rlimit tight = {limit, limit};
    if (::setrlimit(RLIMIT_NOFILE, &tight) != 0) ::_exit(1);
    const auto region = FetchRegion(options_.socket_path, {token_, RegionKind::kWeights, 0});
    ::_exit(absl::IsResourceExhausted(region.status()) ? 42 : 2);
  };
  EXPECT_EXIT(fetch_with_one_descriptor_left(), testing::ExitedWithCode(42), "");
}

TEST(RegionSocketPathTest, OnlyUnixTargetsHaveOne) {
  EXPECT_EQ(RegionSocketPath("unix:/run/l.sock").value(), "/run/l.sock.fds");
  EXPECT_EQ(RegionSocketPath("unix:///run/l.sock").value(), "/run/l.sock.fds");
  EXPECT_EQ(RegionSocketPath("127.0.0.1:80").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tandem
