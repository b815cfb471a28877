#include "services/common/rpc/socket_trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "services/common/base/check.h"
#include "services/common/base/unique_fd.h"
#include "services/common/rpc/unix_socket.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr uid_t kNobody = 65534;

UniqueFd Listen(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = UnixSocketAddress(path).value();
  TANDEM_CHECK(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  TANDEM_CHECK(::chmod(path.c_str(), 0666) == 0 && ::listen(fd.get(), 8) == 0);
  return fd;
}

// Runs `act` as another user; whether it returned true.
bool AsNobody(const std::function<bool()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool done = ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0 && act();
    ::_exit(done ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

// A socket of another user's that is listened on for as long as this lives.
class NobodysListener {
 public:
  explicit NobodysListener(const std::string& path) {
    int ready[2];
    TANDEM_CHECK(::pipe(ready) == 0);
    child_ = ::fork();
    if (child_ == 0) {
      if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
      const UniqueFd fd = Listen(path);
      (void)!::write(ready[1], "r", 1);
      while (true) ::pause();
    }
    char byte = 0;
    ::close(ready[1]);
    TANDEM_CHECK(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
  }
  ~NobodysListener() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_ = 0;
};

class SocketTrustTest : public ::testing::Test {
 protected:
  std::string MakeFolder(const std::string& name, mode_t mode, uid_t owner) const {
    const std::string path = directory_.path() + "/" + name;
    TANDEM_CHECK(::mkdir(path.c_str(), mode) == 0 && ::chmod(path.c_str(), mode) == 0);
    TANDEM_CHECK(owner == ::geteuid() || ::chown(path.c_str(), owner, owner) == 0);
    return path;
  }

  TemporaryDirectory directory_;
};

class TwoUsersTest : public SocketTrustTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
    std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
  }
};

TEST_F(SocketTrustTest, OnesOwnSocketInOnesOwnFolderIsTrusted) {
  const std::string path = MakeFolder("own", 0700, ::geteuid()) + "/s.sock";
  EXPECT_OK(CheckSocketFolder(path));
  EXPECT_OK(CheckSocketPeer(path)) << "nobody listens yet";
  const UniqueFd listener = Listen(path);
  EXPECT_OK(CheckSocketPeer(path));
  EXPECT_OK(CheckTargetPeer("unix:" + path));
  EXPECT_OK(CheckTargetPeer("127.0.0.1:1"));
  EXPECT_OK(CheckSocketPeer("/nowhere/at/all.sock"));
}

TEST_F(TwoUsersTest, AnotherUsersListenerIsRefusedUnlessToldOtherwise) {
  const std::string path = MakeFolder("tmp", 01777, 0) + "/gateway.sock";
  const NobodysListener listener(path);
  EXPECT_THAT(CheckSocketPeer(path),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("of user 65534")));
  EXPECT_OK(CheckSocketPeer(path, kNobody));
  EXPECT_THAT(CheckSocketPeer(path, 1234), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST_F(TwoUsersTest, AnotherUsersFolderIsRefusedBeforeAnybodyListens) {
  const std::string fallback = MakeFolder("tmp", 01777, 0) + "/tandem-0";
  ASSERT_TRUE(AsNobody([&] { return ::mkdir(fallback.c_str(), 0755) == 0; }));
  EXPECT_THAT(CheckSocketPeer(fallback + "/gateway.sock"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("of user 65534")));
  EXPECT_THAT(CheckSocketFolder(fallback + "/gateway.sock"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("belongs to user 65534")));
}

// As systemd makes /run/tandem for the user tandem.
TEST_F(TwoUsersTest, TheOwnerOfAFolderThatRootMadeIsTrusted) {
  const std::string path = MakeFolder("tandem", 0755, kNobody) + "/gateway.sock";
  EXPECT_OK(CheckSocketPeer(path));
  const NobodysListener listener(path);
  EXPECT_OK(CheckSocketPeer(path));
  EXPECT_TRUE(AsNobody([&] { return CheckSocketPeer(path).ok(); }));
}

TEST_F(TwoUsersTest, AnyUserTrustsRoot) {
  const std::string path = MakeFolder("own", 0755, 0) + "/s.sock";
  const UniqueFd listener = Listen(path);
  EXPECT_TRUE(AsNobody([&] { return CheckSocketPeer(path).ok(); }));
}

TEST_F(TwoUsersTest, AnotherUsersLinkIsNotFollowed) {
  const std::string shared = MakeFolder("tmp", 01777, 0);
  const std::string own = MakeFolder("own", 0700, 0);
  ASSERT_TRUE(
      AsNobody([&] { return ::symlink(own.c_str(), (shared + "/tandem-0").c_str()) == 0; }));
  const std::string path = shared + "/tandem-0/gateway.sock";
  EXPECT_THAT(CheckSocketPeer(path),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("link of another user")));
  EXPECT_THAT(CheckSocketFolder(path),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("link of another user")));
}

TEST_F(TwoUsersTest, AFolderOfOnesOwnThatOthersMayWriteIsRefused) {
  const std::string open = MakeFolder("open", 0777, kNobody) + "/s.sock";
  EXPECT_TRUE(AsNobody([&] {
    const absl::Status status = CheckSocketFolder(open);
    return absl::IsFailedPrecondition(status) &&
           status.message().find("chmod go-w") != absl::string_view::npos;
  }));
}

TEST_F(TwoUsersTest, AFolderOfRootsThatOthersMayWriteIsRefusedUnlessItIsStickyOrMounted) {
  const std::string folder = MakeFolder("a folder", 0777, 0);
  EXPECT_THAT(CheckSocketFolder(folder + "/s.sock"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has mode 0777")));
  EXPECT_OK(CheckSocketFolder(MakeFolder("tmp", 01777, 0) + "/s.sock"));
  // A pod's volume: root's, and open to its containers.  In a mount namespace of its own.
  constexpr int kNoMounts = 2;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder.c_str(), "tmpfs", 0, "mode=0777") != 0) {
      ::_exit(kNoMounts);
    }
    ::_exit(CheckSocketFolder(folder + "/s.sock").ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kNoMounts) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tandem
