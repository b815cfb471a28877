// Each test enters the sandbox in a process of its own and tries what must not work there.
#include "services/image_decoder/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <vector>

namespace tandem::image_decoder {
namespace {

constexpr int kEntered = 42;
constexpr int kRefused = 43;
constexpr int kNotEntered = 44;

// The wait status of a process that enters the sandbox, then runs `work` and exits with its result.
int StatusOf(const std::function<int()>& work, const SandboxLimits& limits = {}) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!EnterSandbox(limits).ok()) ::_exit(kNotEntered);
    ::_exit(work());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// Killed for the call; under sanitizers the call fails and `work` returns kRefused.
void ExpectDenied(const char* what, const std::function<int()>& work) {
  const int status = StatusOf(work);
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
  const bool refused = WIFEXITED(status) && WEXITSTATUS(status) == kRefused;
  EXPECT_TRUE(killed || refused) << what << " ended with wait status " << status;
}

int Result(bool worked) { return worked ? kEntered : kRefused; }

TEST(SandboxTest, LeavesMemoryAndTheEnd) {
  const int status = StatusOf([] {
    std::vector<char> memory(32 << 20, 1);
    return memory.back() == 1 ? kEntered : kRefused;
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), kEntered);
}

TEST(SandboxTest, DeniesEverythingElse) {
  ExpectDenied("open", [] { return Result(::open("/etc/passwd", O_RDONLY) >= 0); });
  ExpectDenied("socket", [] { return Result(::socket(AF_INET, SOCK_STREAM, 0) >= 0); });
  ExpectDenied("fork", [] {
    const long child = ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) ::_exit(0);
    return Result(child > 0);
  });
  ExpectDenied("execve", [] {
    char* const none[] = {nullptr};
    return Result(::execve("/bin/true", none, none) == 0);
  });
  ExpectDenied("kill", [] { return Result(::kill(::getppid(), 0) == 0); });
  ExpectDenied("memfd_create", [] { return Result(::memfd_create("x", 0) >= 0); });
  ExpectDenied("executable memory", [] {
    void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return Result(memory != MAP_FAILED);
  });
}

TEST(SandboxTest, ClosesOtherDescriptors) {
  const int file = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(file, 3);
  const int status = StatusOf([file] { return ::close(file) != 0 ? kEntered : kRefused; });
  ::close(file);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), kEntered);
}

TEST(SandboxTest, EndsWorkThatTakesTooLong) {
  const int status = StatusOf(
      [] {
        for (volatile uint64_t i = 0;;) {
          i = i + 1;
        }
        return kRefused;
      },
      {.max_cpu_seconds = 1});
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGXCPU);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
TEST(SandboxTest, BoundsMemory) {
  const int status = StatusOf(
      [] {
        // Without a library's wrapper, which might be optimised away.
        void* memory = ::mmap(nullptr, size_t{1} << 30, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED && errno == ENOMEM ? kEntered : kRefused;
      },
      {.max_memory_bytes = uint64_t{512} << 20});
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), kEntered);
}
#endif

}  // namespace
}  // namespace tandem::image_decoder
