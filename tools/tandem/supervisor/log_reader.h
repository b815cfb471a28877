// Reads the log files of a cluster: rotated, several services at once, in the order of time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"

namespace tandem {

struct LogEntry {
  std::string time;     // of the line, or else of the line before; may be empty
  std::string service;  // "gateway"
  std::string text;     // without its line end
};

// Single-thread.
class LogReader {
 public:
  // `services`: names of files below `log_dir` without ".log"; empty: all files, now and
  // later.  NOT_FOUND: the directory, or one of the services, has no log; lists the existing logs.
  static absl::StatusOr<LogReader> Open(const std::string& log_dir,
                                        std::vector<std::string> services);
  LogReader(LogReader&&) = default;

  // The last `num_lines` lines of all services together, oldest first.  Call this once, first.
  std::vector<LogEntry> Last(size_t num_lines);
  // Whole lines written since the last call.
  std::vector<LogEntry> More();

 private:
  struct Tail {
    UniqueFd fd;
    uint64_t offset = 0;
    std::string partial;  // a line that has not ended
    std::string time;     // of the last line that had one
  };

  LogReader(std::string log_dir, std::vector<std::string> services)
      : log_dir_(std::move(log_dir)), services_(std::move(services)) {}
  std::string PathOf(const std::string& service) const;
  std::vector<std::string> Services() const;
  // Reads from the tail's file to its end, and appends the lines.
  static void ReadOn(const std::string& service, Tail& tail, std::vector<LogEntry>& entries);

  std::string log_dir_;
  std::vector<std::string> services_;  // as asked for
  std::map<std::string, Tail> tails_;
};

}  // namespace tandem
