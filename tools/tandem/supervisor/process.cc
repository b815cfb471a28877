#include "tools/tandem/supervisor/process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_format.h"
#include "services/common/base/unique_fd.h"

namespace tandem {
namespace {

// Everything the child needs between fork and exec, where only async-signal-safe calls may run.
struct ExecPlan {
  std::vector<char*> argv;
  std::vector<char*> envp;
  int output_fd = -1;
  pid_t parent = 0;
};

[[noreturn]] void Exec(const ExecPlan& plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != plan.parent) ::_exit(126);
  ::setpgid(0, 0);  // a terminal's Ctrl-C reaches the supervisor alone, which drains in order
  ::signal(SIGHUP, SIG_IGN);  // until it asks for it: one passed on early must not end it
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.output_fd >= 0) {
    ::dup2(plan.output_fd, STDOUT_FILENO);
    ::dup2(plan.output_fd, STDERR_FILENO);
  }
  ::execve(plan.argv[0], plan.argv.data(), plan.envp.data());
  ::_exit(127);
}

std::vector<std::string> MergedEnvironment(const ProcessSpec& spec) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string key = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [name, value] : spec.environment) replaced |= name == key;
    if (!replaced) merged.push_back(text);
  }
  for (const auto& [name, value] : spec.environment) merged.push_back(name + "=" + value);
  return merged;
}

}  // namespace

std::string ProcessEnd::Text() const {
  if (!signalled) return absl::StrFormat("exit code %d", code);
  return absl::StrFormat("signal %d (%s)", code, ::strsignal(code));
}

absl::StatusOr<pid_t> StartProcess(const ProcessSpec& spec) {
  if (::access(spec.argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrFormat("%s: cannot execute %s: %s", spec.name, spec.argv[0], ::strerror(errno)));
  }
  UniqueFd log;
  if (spec.output_fd < 0 && !spec.log_path.empty()) {
    log.Reset(::open(spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!log.valid()) {
      return absl::InternalError(
          absl::StrFormat("%s: log file %s: %s", spec.name, spec.log_path, ::strerror(errno)));
    }
  }
  std::vector<std::string> environment = MergedEnvironment(spec);
  std::vector<std::string> arguments = spec.argv;
  ExecPlan plan;
  for (std::string& argument : arguments) plan.argv.push_back(argument.data());
  plan.argv.push_back(nullptr);
  for (std::string& entry : environment) plan.envp.push_back(entry.data());
  plan.envp.push_back(nullptr);
  plan.output_fd = spec.output_fd >= 0 ? spec.output_fd : log.get();
  plan.parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) Exec(plan);
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: fork: %s", spec.name, ::strerror(errno)));
  }
  return pid;
}

std::optional<ProcessEnd> ReapProcess(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  if (WIFSIGNALED(status)) return ProcessEnd{true, WTERMSIG(status)};
  return ProcessEnd{false, WEXITSTATUS(status)};
}

}  // namespace tandem
