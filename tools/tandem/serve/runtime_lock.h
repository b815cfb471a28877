// Allows one `tandem serve` per runtime directory, and lets other commands find it.
//
// RUNTIME_DIR/serve.pid holds two lines, the process id and the log directory, and is locked for as
// long as the process lives.  The kernel releases the lock however the process ends, so a
// file left behind does not block the next one.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/unique_fd.h"

namespace tandem {

struct RunningServe {
  pid_t pid = 0;
  std::string log_dir;
  UniqueFd process;  // that very process, even if its id is given to another

  // INTERNAL: the kernel refuses; it has ended, for example.
  absl::Status Signal(int number) const;
};

// Holds the directory; its destructor removes the file.
class RuntimeLock {
 public:
  // REQUIRES the directory exists.  ALREADY_EXISTS: another process holds it, "already running,
  // pid N (runtime directory D)"; INTERNAL: the file cannot be written.
  static absl::StatusOr<RuntimeLock> Take(const std::string& runtime_dir,
                                          const std::string& log_dir);
  RuntimeLock(RuntimeLock&&) = default;
  RuntimeLock& operator=(RuntimeLock&&) = delete;
  ~RuntimeLock();

 private:
  RuntimeLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;  // not valid once moved
};

// The process that holds the directory; nullopt if it is free.  The file is checked before it is
// believed.  PERMISSION_DENIED: the directory or the file belongs to another user, who could name
// any process, or the file is a link or cannot be opened.  FAILED_PRECONDITION: the process that it
// names is another user's, or does not have the file open.
absl::StatusOr<std::optional<RunningServe>> FindServe(const std::string& runtime_dir);

// Waits until no server answers on the sockets in the directory.  The services of a killed `tandem
// serve` end by themselves, the gateway after its requests.  Calls `say` once if it must wait, and
// returns whether it did.  ALREADY_EXISTS: a server still answers after `patience`.
absl::StatusOr<bool> AwaitStaleServices(const std::string& runtime_dir, absl::Duration patience,
                                        void (*say)(const std::string& text));

}  // namespace tandem
