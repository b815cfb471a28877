#include "tools/tandem/commands/testing/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/common/base/check.h"
#include "services/common/testing/paths.h"

namespace tandem {
namespace {

constexpr int kMostSilence = 60'000;  // milliseconds

void MakePipe(UniqueFd& read_end, UniqueFd& write_end) {
  int fds[2];
  TANDEM_CHECK(::pipe2(fds, O_CLOEXEC) == 0);
  read_end.Reset(fds[0]);
  write_end.Reset(fds[1]);
}

// Appends what can be read; closes `fd` at its end.
void Drain(UniqueFd& fd, std::string& text) {
  char bytes[1 << 12];
  const ssize_t count = ::read(fd.get(), bytes, sizeof(bytes));
  if (count > 0) {
    text.append(bytes, static_cast<size_t>(count));
  } else {
    fd.Reset();
  }
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments, const char* output) {
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd child_input;
  UniqueFd child_output;
  UniqueFd child_errors;
  MakePipe(child_input, input_);
  MakePipe(output_, child_output);
  if (output != nullptr) child_output = UniqueFd(::open(output, O_WRONLY | O_CLOEXEC));
  MakePipe(errors_, child_errors);
  std::string program = BuildPath("bin/tandem");
  std::vector<std::string> words = arguments;
  std::vector<char*> argv = {program.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::vfork();
  TANDEM_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::dup2(child_input.get(), STDIN_FILENO);
    ::dup2(child_output.get(), STDOUT_FILENO);
    ::dup2(child_errors.get(), STDERR_FILENO);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
}

Child::~Child() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(input_.get(), text.data(), text.size());
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void Child::Signal(int signal) { ::kill(pid_, signal); }

bool Child::ReadSome() {
  pollfd polled[] = {{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}};
  if (!output_.valid() && !errors_.valid()) return false;
  if (::poll(polled, 2, kMostSilence) == 0) {  // it hangs
    ::kill(pid_, SIGKILL);
    return false;
  }
  if (polled[0].revents != 0) Drain(output_, output_text_);
  if (polled[1].revents != 0) Drain(errors_, errors_text_);
  return true;
}

bool Child::WaitForOutput(std::string_view text) {
  while (output_text_.find(text) == std::string::npos) {
    if (!ReadSome()) return false;
  }
  return true;
}

int Child::Wait() {
  while (ReadSome()) {
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace tandem
