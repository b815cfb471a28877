#include "tools/tandem/serve/runtime_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/unique_fd.h"
#include "services/common/rpc/unix_socket.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(RuntimeLockTest, OneProcessHoldsADirectoryAndOthersLearnWhich) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(FindServe(folder.path()).has_value());
  {
    const auto lock = RuntimeLock::Take(folder.path(), "/var/log/of its own");
    ASSERT_TRUE(lock.ok()) << lock.status();
    const auto second = RuntimeLock::Take(folder.path(), "");
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(second.status().message()),
                HasSubstr(absl::StrFormat("already running, pid %d (runtime directory %s)",
                                          getpid(), folder.path())));
    const auto found = FindServe(folder.path());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->pid, getpid());
    EXPECT_EQ(found->log_dir, "/var/log/of its own");
  }
  EXPECT_FALSE(FindServe(folder.path()).has_value());
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
  EXPECT_FALSE(FindServe(folder.path()).has_value());
  const auto lock = RuntimeLock::Take(folder.path(), "");
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(FindServe(folder.path())->pid, getpid());
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
