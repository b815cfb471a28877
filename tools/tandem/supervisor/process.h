// One child process: started, watched, signalled.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

struct ProcessSpec {
  std::string name;               // "gpu_worker", for logs
  std::vector<std::string> argv;  // argv[0] is the path of the executable
  std::vector<std::pair<std::string, std::string>> environment;  // added to our own
  std::string log_path;  // standard output and error are appended here; empty: inherited
  int output_fd = -1;    // ... or go here, if it is one.  Borrowed; must outlive the start
};

// How a child ended.
struct ProcessEnd {
  bool signalled = false;
  int code = 0;              // exit code, or the signal's number
  std::string Text() const;  // "exit code 1", "signal 9 (Killed)"
};

// Starts a child whose signal mask is empty, which ignores SIGHUP unless it blocks it, and which
// gets SIGTERM when the thread that started it ends.  NOT_FOUND: no such executable.  Safe in a
// process with threads.
absl::StatusOr<pid_t> StartProcess(const ProcessSpec& spec);

// Collects `pid` if it has ended; never waits.
std::optional<ProcessEnd> ReapProcess(pid_t pid);

}  // namespace tandem
