#include "services/image_decoder/sandbox.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "services/common/base/sanitized.h"
#include "services/common/base/status_macros.h"

namespace tandem::image_decoder {
namespace {

constexpr uint32_t kDenied = kSanitized ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS;

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "the decoder's sandbox knows x86-64 and AArch64"
#endif

// Memory, the socket, and the end.
constexpr uint32_t kAllowed[] = {
    __NR_recvmsg, __NR_sendmsg,    __NR_close,        __NR_brk,           __NR_munmap,
    __NR_mremap,  __NR_madvise,    __NR_futex,        __NR_clock_gettime, __NR_getrandom,
    __NR_exit,    __NR_exit_group, __NR_rt_sigreturn,
};
// Reports and checks for leaks.
constexpr uint32_t kAllowedToSanitizers[] = {
    __NR_write,        __NR_getpid,         __NR_gettid,      __NR_sigaltstack,
    __NR_rt_sigaction, __NR_rt_sigprocmask, __NR_sched_yield, __NR_prctl,
};
// Memory, but none that is executable: the third argument has the protection.
constexpr uint32_t kAllowedUnlessExecutable[] = {__NR_mmap, __NR_mprotect};

constexpr uint32_t kOffsetOfNumber = offsetof(seccomp_data, nr);
constexpr uint32_t kOffsetOfArchitecture = offsetof(seccomp_data, arch);
// The low half, on a little-endian machine.
constexpr uint32_t kOffsetOfThirdArgument = offsetof(seccomp_data, args) + 2 * sizeof(uint64_t);

sock_filter Load(uint32_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); }
sock_filter Return(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
// Skips the next `count` instructions unless the loaded value is `value`.
sock_filter UnlessEqualSkip(uint32_t value, uint8_t count) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count);
}

std::vector<sock_filter> Program() {
  std::vector<sock_filter> program = {Load(kOffsetOfArchitecture),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
                                      Return(SECCOMP_RET_KILL_PROCESS), Load(kOffsetOfNumber)};
  const auto allow = [&program](absl::Span<const uint32_t> numbers) {
    for (const uint32_t number : numbers) {
      program.push_back(UnlessEqualSkip(number, 1));
      program.push_back(Return(SECCOMP_RET_ALLOW));
    }
  };
  allow(kAllowed);
  if (kSanitized) allow(kAllowedToSanitizers);
  for (const uint32_t number : kAllowedUnlessExecutable) {
    program.push_back(UnlessEqualSkip(number, 4));
    program.push_back(Load(kOffsetOfThirdArgument));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1));
    program.push_back(Return(kDenied));
    program.push_back(Return(SECCOMP_RET_ALLOW));
  }
  program.push_back(Return(kDenied));
  return program;
}

absl::Status Failed(const char* step) {
  return absl::InternalError(
      absl::StrFormat("the decoder's sandbox: %s: %s", step,
                      std::string(absl::ErrnoToStatus(errno, "refused").message())));
}

absl::Status Limit(const char* step, int resource, rlim_t value, rlim_t hard_value) {
  const rlimit limit{value, hard_value};
  return ::setrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 ? absl::OkStatus()
                                                                            : Failed(step);
}
absl::Status Limit(const char* step, int resource, rlim_t value) {
  return Limit(step, resource, value, value);
}

}  // namespace

absl::Status EnterSandbox(const SandboxLimits& limits) {
  // Standard output is closed as well; 2 stays for the messages of a failed start until its end.
  if (::close_range(3, ~0u, 0) != 0) return Failed("close_range");
  ::close(STDOUT_FILENO);
  if (!kSanitized) {
    TANDEM_RETURN_IF_ERROR(Limit("RLIMIT_AS", RLIMIT_AS, limits.max_memory_bytes));
  }
  // Past the first limit SIGXCPU says why it ends; past the second it is killed.
  TANDEM_RETURN_IF_ERROR(
      Limit("RLIMIT_CPU", RLIMIT_CPU, limits.max_cpu_seconds, limits.max_cpu_seconds + 1));
  TANDEM_RETURN_IF_ERROR(Limit("RLIMIT_CORE", RLIMIT_CORE, 0));
  TANDEM_RETURN_IF_ERROR(Limit("RLIMIT_FSIZE", RLIMIT_FSIZE, 0));
  TANDEM_RETURN_IF_ERROR(Limit("RLIMIT_NPROC", RLIMIT_NPROC, 0));
  // The socket, standard error, and the two descriptors of a request.
  TANDEM_RETURN_IF_ERROR(Limit("RLIMIT_NOFILE", RLIMIT_NOFILE, 8));
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return Failed("PR_SET_DUMPABLE");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Failed("PR_SET_NO_NEW_PRIVS");
  std::vector<sock_filter> program = Program();
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0) return Failed("seccomp");
  // It may be a socket, as of a journal.
  if (!kSanitized) ::close(STDERR_FILENO);
  return absl::OkStatus();
}

}  // namespace tandem::image_decoder
