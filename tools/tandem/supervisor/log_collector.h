// Writes the output of services to rotated files.
//
//   service --stdout, stderr--> pipe --> this thread --> gpu_worker.log, .1, .2, ...
//
// Services write to a pipe, not to the file: so all their output (the log, a driver's, the C
// library's abort) is rotated, and no service reopens a file.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/mutex.h"
#include "services/common/base/unique_fd.h"
#include "tools/tandem/supervisor/rotating_file.h"

namespace tandem {

// Thread-safe.
class LogCollector {
 public:
  // Starts to collect.  Its thread has the signal mask of the caller.
  static absl::StatusOr<std::unique_ptr<LogCollector>> Create(const LogRotation& rotation);
  // Collects everything written so far, and ends.
  ~LogCollector();

  // A descriptor to write to; the text goes to the file at `path`.  Belongs to the collector.
  // INTERNAL: the file cannot be opened.
  absl::StatusOr<int> Add(const std::string& path);
  // The last non-empty line since Add.
  std::string LastLine(const std::string& path);

 private:
  struct Source {
    UniqueFd read_end;
    UniqueFd write_end;  // kept open, so that the end of a service is no end of file
    RotatingFile file;
    std::string line;  // the one being written, its first bytes
    std::string last_line;
  };

  LogCollector(const LogRotation& rotation, UniqueFd wake) noexcept;
  void Run();
  void CollectAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Collect(Source& source);

  const LogRotation rotation_;
  const UniqueFd wake_;  // eventfd: sources were added, or this ends
  Mutex mutex_;
  std::vector<std::unique_ptr<Source>> sources_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem
