#include "services/common/systemd/service_manager.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "services/common/base/shared_memory.h"
#include "services/common/systemd/testing/fake_service_manager.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Sets a variable for as long as it lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { ::unsetenv(name_); }

 private:
  const char* const name_;
};

ino_t Inode(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return info.st_ino;
}

TEST(ServiceManagerTest, NobodyIsToldAnythingWithoutASocket) {
  ::unsetenv("NOTIFY_SOCKET");
  const ServiceManager manager = ServiceManager::FromEnvironment();
  EXPECT_FALSE(manager.present());
  manager.Ready();
  EXPECT_EQ(manager.StoreDescriptors("a", {{0}}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(manager.watchdog(), absl::ZeroDuration());
}

TEST(ServiceManagerTest, AddressesThatCannotBeUsedAreLeftAlone) {
  for (const char* address : {"relative", "vsock:2:1234"}) {
    const ScopedVariable socket("NOTIFY_SOCKET", address);
    EXPECT_FALSE(ServiceManager::FromEnvironment().present()) << address;
  }
  const ScopedVariable socket("NOTIFY_SOCKET", "/" + std::string(200, 'x'));
  EXPECT_FALSE(ServiceManager::FromEnvironment().present());
}

TEST(ServiceManagerTest, SaysWhatTheProtocolAsksFor) {
  testing::FakeServiceManager fake;
  const ScopedVariable socket("NOTIFY_SOCKET", fake.socket());
  const ServiceManager manager = ServiceManager::FromEnvironment();
  manager.Status("two\nlines");
  manager.ExtendTimeout(absl::Seconds(2));
  manager.Ready();
  manager.Alive();
  manager.Stopping();
  ASSERT_TRUE(fake.WaitForLine("STOPPING=1"));
  EXPECT_THAT(fake.Lines(), ElementsAre("STATUS=two lines", "EXTEND_TIMEOUT_USEC=2000000",
                                        "READY=1", "WATCHDOG=1", "STOPPING=1"));
}

TEST(ServiceManagerTest, TheWatchdogIsThatOfOneProcess) {
  testing::FakeServiceManager fake;
  const ScopedVariable socket("NOTIFY_SOCKET", fake.socket());
  const ScopedVariable interval("WATCHDOG_USEC", "1500000");
  EXPECT_EQ(ServiceManager::FromEnvironment().watchdog(), absl::Milliseconds(1500));
  {
    const ScopedVariable pid("WATCHDOG_PID", std::to_string(::getpid()));
    EXPECT_EQ(ServiceManager::FromEnvironment().watchdog(), absl::Milliseconds(1500));
  }
  const ScopedVariable pid("WATCHDOG_PID", "1");
  EXPECT_EQ(ServiceManager::FromEnvironment().watchdog(), absl::ZeroDuration());
}

TEST(ServiceManagerTest, TheManagerKeepsDescriptorsByName) {
  testing::FakeServiceManager fake;
  const ScopedVariable socket("NOTIFY_SOCKET", fake.socket());
  const ServiceManager manager = ServiceManager::FromEnvironment();
  const UniqueFd memory = CreateSharedMemory("test", 4096).value();
  ASSERT_TRUE(manager.StoreDescriptors("weights.1", {{memory.get(), memory.get()}}).ok());
  ASSERT_TRUE(manager.StoreDescriptors("weights.2", {{memory.get()}}).ok());
  ASSERT_TRUE(manager.Barrier(absl::Seconds(60)).ok());
  EXPECT_THAT(fake.StoredNames(), ElementsAre("weights.2", "weights.1", "weights.1"));
  EXPECT_EQ(Inode(fake.StoredDescriptors()[0]), Inode(memory.get()));
  ASSERT_TRUE(manager.RemoveDescriptors("weights.1").ok());
  ASSERT_TRUE(manager.Barrier(absl::Seconds(60)).ok());
  EXPECT_THAT(fake.StoredNames(), ElementsAre("weights.2"));
}

TEST(ServiceManagerTest, MoreDescriptorsThanAMessageCarriesGoInSeveral) {
  testing::FakeServiceManager fake;
  const ScopedVariable socket("NOTIFY_SOCKET", fake.socket());
  const ServiceManager manager = ServiceManager::FromEnvironment();
  const UniqueFd memory = CreateSharedMemory("test", 4096).value();
  const std::vector<int> fds(254, memory.get());
  ASSERT_TRUE(manager.StoreDescriptors("many", fds).ok());
  ASSERT_TRUE(manager.Barrier(absl::Seconds(60)).ok());
  EXPECT_EQ(fake.StoredNames().size(), 254u);
  EXPECT_EQ(fake.Count("FDSTORE=1"), 2u);
}

TEST(ServiceManagerTest, NamesThatTheProtocolCannotCarryAreRefused) {
  testing::FakeServiceManager fake;
  const ScopedVariable socket("NOTIFY_SOCKET", fake.socket());
  const ServiceManager manager = ServiceManager::FromEnvironment();
  for (const std::string& name : {std::string(), std::string("a:b"), std::string("a\nREADY=1"),
                                  std::string("a b"), std::string(256, 'a')}) {
    EXPECT_EQ(manager.StoreDescriptors(name, {{0}}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(manager.RemoveDescriptors(name).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(fake.Lines(), IsEmpty());
}

// In a child: the numbers of inherited descriptors are fixed.
TEST(ServiceManagerTest, InheritedDescriptorsAreTakenOnce) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const UniqueFd memory = CreateSharedMemory("test", 4096).value();
    const ino_t inode = Inode(memory.get());
    const int high = ::fcntl(memory.get(), F_DUPFD, 100);
    if (::dup2(high, 3) != 3 || ::dup2(high, 4) != 4) ::_exit(1);
    ::close(5);
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", "3", 1);
    ::setenv("LISTEN_FDNAMES", "first:second", 1);
    const auto taken = TakeInheritedDescriptors();
    const bool right = taken.size() == 2 && taken[0].name == "first" && taken[1].name == "second" &&
                       Inode(taken[1].fd.get()) == inode &&
                       (::fcntl(taken[0].fd.get(), F_GETFD) & FD_CLOEXEC) != 0 &&
                       TakeInheritedDescriptors().empty();
    ::_exit(right ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ServiceManagerTest, AnotherProcessesDescriptorsAreNotTaken) {
  const ScopedVariable pid("LISTEN_PID", "1");
  const ScopedVariable count("LISTEN_FDS", "1");
  EXPECT_THAT(TakeInheritedDescriptors(), IsEmpty());
  EXPECT_STREQ(std::getenv("LISTEN_FDS"), "1");
}

}  // namespace
}  // namespace tandem
