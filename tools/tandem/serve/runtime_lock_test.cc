#include "tools/tandem/serve/runtime_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/unique_fd.h"
#include "services/common/rpc/unix_socket.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(RuntimeLockTest, OneProcessHoldsADirectoryAndOthersLearnWhich) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(FindServe(folder.path()).value().has_value());
  {
    const auto lock = RuntimeLock::Take(folder.path(), "/var/log/of its own");
    ASSERT_TRUE(lock.ok()) << lock.status();
    const auto second = RuntimeLock::Take(folder.path(), "");
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(second.status().message()),
                HasSubstr(absl::StrFormat("already running, pid %d (runtime directory %s)",
                                          getpid(), folder.path())));
    const auto serve = FindServe(folder.path());
    ASSERT_TRUE(serve.ok()) << serve.status();
    const auto& found = *serve;
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->pid, getpid());
    EXPECT_EQ(found->log_dir, "/var/log/of its own");
  }
  EXPECT_FALSE(FindServe(folder.path()).value().has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(RuntimeLockTest, WhatAKilledProcessLeftKeepsNobodyOut) {
  const TemporaryDirectory folder;
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = RuntimeLock::Take(folder.path(), "");
    kill(getpid(), SIGKILL);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(std::filesystem::exists(folder.path() + "/serve.pid"));
  EXPECT_FALSE(FindServe(folder.path()).value().has_value());
  const auto lock = RuntimeLock::Take(folder.path(), "");
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(FindServe(folder.path()).value()->pid, getpid());
}

// A process of its own that waits to be ended.
class Waiting {
 public:
  explicit Waiting(const std::function<void()>& first = [] {}) {
    int ready[2];
    TANDEM_CHECK(pipe(ready) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      first();
      (void)!write(ready[1], "r", 1);
      while (true) pause();
    }
    close(ready[1]);
    char byte = 0;
    TANDEM_CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
  }
  ~Waiting() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  // The signal that ended it.
  int Await() {
    int status = 0;
    TANDEM_CHECK(waitpid(std::exchange(pid_, 0), &status, 0) > 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  pid_t pid_ = 0;
};

TEST(RuntimeLockTest, ASignalReachesTheHolder) {
  const TemporaryDirectory folder;
  Waiting holder([&] { (void)new auto(RuntimeLock::Take(folder.path(), "")); });
  const auto found = FindServe(folder.path());
  ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
  EXPECT_EQ((*found)->pid, holder.pid());
  EXPECT_TRUE((*found)->Signal(SIGTERM).ok());
  EXPECT_EQ(holder.Await(), SIGTERM);
  EXPECT_EQ((*found)->Signal(SIGTERM).code(), absl::StatusCode::kInternal) << "it has ended";
}

TEST(RuntimeLockTest, AFileThatNamesAnotherProcessIsNotBelieved) {
  const TemporaryDirectory folder;
  const Waiting other;  // before there is a lock that it would inherit
  const auto lock = RuntimeLock::Take(folder.path(), "");
  ASSERT_TRUE(lock.ok()) << lock.status();
  // In place: the lock is of the file that is there.
  std::fstream(folder.path() + "/serve.pid") << other.pid() << "\n";
  const auto found = FindServe(folder.path());
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(found.status().message()),
              HasSubstr(absl::StrFormat("names pid %d", other.pid())));
}

// As in /tmp, where the folder's name can be known before it is made.
TEST(RuntimeLockTest, AnotherUsersFileNamesNoProcess) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  const TemporaryDirectory shared;
  std::filesystem::permissions(shared.path(), std::filesystem::perms(01777));
  const std::string folder = shared.path() + "/tandem-0";
  const Waiting attacker([&] {
    TANDEM_CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    std::filesystem::create_directory(folder);
    (void)new auto(RuntimeLock::Take(folder, "/of/root"));
    std::fstream(folder + "/serve.pid") << "1\n/of/root\n";
  });
  const auto found = FindServe(folder);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("belongs to user 65534"));
}

TEST(RuntimeLockTest, SocketsOfAnEarlierClusterAreWaitedFor) {
  const TemporaryDirectory folder;
  const auto nothing = [](const std::string&) {};
  EXPECT_EQ(AwaitStaleServices(folder.path(), absl::ZeroDuration(), nothing).value(), false);
  const auto address = UnixSocketAddress(folder.path() + "/gateway.sock");
  ASSERT_TRUE(address.ok());
  UniqueFd server(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(server.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)), 0);
  ASSERT_EQ(listen(server.get(), 1), 0);
  EXPECT_EQ(AwaitStaleServices(folder.path(), absl::Milliseconds(10), nothing).status().code(),
            absl::StatusCode::kAlreadyExists);
  std::thread ending([&server] {
    absl::SleepFor(absl::Milliseconds(50));
    server.Reset();
  });
  EXPECT_EQ(AwaitStaleServices(folder.path(), absl::Seconds(20), nothing).value(), true);
  ending.join();
}

}  // namespace
}  // namespace tandem
