#include "tools/tandem/supervisor/log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/tandem/supervisor/log_line.h"
#include "tools/tandem/supervisor/rotating_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".log";

// Those in `log_dir` by name.
std::vector<std::string> ServicesIn(const std::string& log_dir) {
  std::vector<std::string> services;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(log_dir, error)) {
    if (entry.path().extension() == kSuffix) services.push_back(entry.path().stem().string());
  }
  std::sort(services.begin(), services.end());
  return services;
}

// One service's lines are in order; lines without a time stay behind the line before them.
void SortByTime(std::vector<LogEntry>& entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const LogEntry& a, const LogEntry& b) { return a.time < b.time; });
}

UniqueFd OpenToRead(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

// Whether `path` is another file than the open one by now.
bool WasRotated(int fd, const std::string& path) {
  struct stat open {};
  struct stat there {};
  return ::stat(path.c_str(), &there) == 0 && ::fstat(fd, &open) == 0 &&
         (open.st_ino != there.st_ino || open.st_dev != there.st_dev);
}

}  // namespace

absl::StatusOr<LogReader> LogReader::Open(const std::string& log_dir,
                                          std::vector<std::string> services) {
  const std::vector<std::string> there = ServicesIn(log_dir);
  if (there.empty()) {
    return absl::NotFoundError(absl::StrFormat("no logs in %s", log_dir));
  }
  for (const std::string& service : services) {
    if (std::find(there.begin(), there.end(), service) != there.end()) continue;
    return absl::NotFoundError(absl::StrFormat("no log of '%s' in %s: there are %s", service,
                                               log_dir, absl::StrJoin(there, ", ")));
  }
  return LogReader(log_dir, std::move(services));
}

std::string LogReader::PathOf(const std::string& service) const {
  return absl::StrFormat("%s/%s%s", log_dir_, service, kSuffix);
}

std::vector<std::string> LogReader::Services() const {
  return services_.empty() ? ServicesIn(log_dir_) : services_;
}

void LogReader::ReadOn(const std::string& service, Tail& tail, std::vector<LogEntry>& entries) {
  std::array<char, 1 << 16> buffer;
  while (true) {
    const ssize_t got =
        ::pread(tail.fd.get(), buffer.data(), buffer.size(), static_cast<off_t>(tail.offset));
    if (got <= 0) return;
    tail.offset += static_cast<uint64_t>(got);
    for (const char c : std::string_view(buffer.data(), static_cast<size_t>(got))) {
      if (c != '\n') {
        tail.partial.push_back(c);
        continue;
      }
      if (const auto time = LogTime(tail.partial); !time.empty()) tail.time = std::string(time);
      entries.push_back({tail.time, service, std::exchange(tail.partial, "")});
    }
  }
}

std::vector<LogEntry> LogReader::Last(size_t num_lines) {
  std::vector<LogEntry> all;
  for (const std::string& service : Services()) {
    const std::string path = PathOf(service);
    Tail& tail = tails_[service];
    tail.fd = OpenToRead(path);
    if (!tail.fd.valid()) continue;
    std::vector<LogEntry> lines;
    ReadOn(service, tail, lines);
    // Older files while lines are wanted.
    for (int age = 1; lines.size() < num_lines; ++age) {
      Tail old{.fd = OpenToRead(RotatedPath(path, age))};
      if (!old.fd.valid()) break;
      std::vector<LogEntry> older;
      ReadOn(service, old, older);
      lines.insert(lines.begin(), older.begin(), older.end());
    }
    const size_t kept = std::min(num_lines, lines.size());
    all.insert(all.end(), lines.end() - static_cast<std::ptrdiff_t>(kept), lines.end());
  }
  SortByTime(all);
  if (all.size() > num_lines) {
    all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(num_lines));
  }
  return all;
}

std::vector<LogEntry> LogReader::More() {
  std::vector<LogEntry> entries;
  for (const std::string& service : Services()) {
    const std::string path = PathOf(service);
    Tail& tail = tails_[service];
    // Asked before reading: lines written to the old file before its rotation are read first.
    const bool rotated = tail.fd.valid() && WasRotated(tail.fd.get(), path);
    if (tail.fd.valid()) ReadOn(service, tail, entries);
    if (tail.fd.valid() && !rotated) continue;
    tail.fd = OpenToRead(path);
    tail.offset = 0;
    if (tail.fd.valid()) ReadOn(service, tail, entries);
  }
  SortByTime(entries);
  return entries;
}

}  // namespace tandem
