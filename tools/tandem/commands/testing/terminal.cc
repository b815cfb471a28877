#include "tools/tandem/commands/testing/terminal.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "services/common/base/check.h"
#include "services/common/testing/paths.h"

namespace tandem {

Terminal::Terminal(const std::vector<std::string>& arguments, const std::string& home,
                   unsigned short columns, bool keep_no_color) {
  const std::string program = BuildPath("bin/tandem");
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int terminal = -1;
  const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  pid_ = ::forkpty(&terminal, nullptr, nullptr, &size);
  TANDEM_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::setenv("HOME", home.c_str(), 1);
    ::setenv("TERM", "xterm", 1);
    ::setenv("LC_ALL", "C.UTF-8", 1);
    ::unsetenv("XDG_STATE_HOME");
    if (!keep_no_color) ::unsetenv("NO_COLOR");
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  terminal_ = UniqueFd(terminal);
}

Terminal::~Terminal() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Terminal::Type(std::string_view keys) {
  TANDEM_CHECK(::write(terminal_.get(), keys.data(), keys.size()) ==
               static_cast<ssize_t>(keys.size()));
}

bool Terminal::ReadSome() {
  pollfd polled = {terminal_.get(), POLLIN, 0};
  if (::poll(&polled, 1, 30'000) <= 0) return false;
  char bytes[1 << 12];
  const ssize_t count = ::read(terminal_.get(), bytes, sizeof(bytes));
  if (count > 0) screen_.append(bytes, static_cast<size_t>(count));
  return count > 0;
}

bool Terminal::WaitFor(std::string_view text) {
  while (true) {
    const size_t found = screen_.find(text, seen_);
    if (found != std::string::npos) {
      seen_ = found + text.size();
      return true;
    }
    if (!ReadSome()) return false;
  }
}

int Terminal::Wait() {
  while (ReadSome()) {
  }
  pollfd polled = {terminal_.get(), POLLHUP, 0};
  if (::poll(&polled, 1, 0) == 0) return kStillRuns;
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace tandem
