#include "tools/tandem/supervisor/log_collector.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

// What a service may write ahead of this thread.
constexpr int kPipeBytes = 1 << 20;
// Of a line, for LastLine.
constexpr size_t kKeptBytes = 4096;

void Wake(const UniqueFd& fd) {
  const uint64_t one = 1;
  (void)!::write(fd.get(), &one, sizeof(one));
}

}  // namespace

LogCollector::LogCollector(const LogRotation& rotation, UniqueFd wake) noexcept
    : rotation_(rotation), wake_(std::move(wake)) {}

absl::StatusOr<std::unique_ptr<LogCollector>> LogCollector::Create(const LogRotation& rotation) {
  UniqueFd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) {
    return absl::ResourceExhaustedError(absl::StrFormat("eventfd: %s", std::strerror(errno)));
  }
  std::unique_ptr<LogCollector> collector(new LogCollector(rotation, std::move(wake)));
  collector->thread_ = std::thread([raw = collector.get()] { raw->Run(); });
  return collector;
}

LogCollector::~LogCollector() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  Wake(wake_);
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<int> LogCollector::Add(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(RotatingFile file, RotatingFile::Open(path, rotation_));
  std::array<int, 2> ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrFormat("pipe: %s", std::strerror(errno)));
  }
  auto source = std::make_unique<Source>(
      Source{UniqueFd(ends[0]), UniqueFd(ends[1]), std::move(file), "", ""});
  // The end that is read alone: a service's writes wait rather than fail.
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  ::fcntl(ends[0], F_SETPIPE_SZ, kPipeBytes);
  {
    MutexLock lock(mutex_);
    sources_.push_back(std::move(source));
  }
  Wake(wake_);
  return ends[1];
}

std::string LogCollector::LastLine(const std::string& path) {
  MutexLock lock(mutex_);
  for (const auto& source : sources_) {
    if (source->file.path() != path) continue;
    Collect(*source);
    return source->line.empty() ? source->last_line : source->line;
  }
  return "";
}

void LogCollector::Collect(Source& source) {
  std::array<char, 1 << 16> buffer;
  // At most a pipe full: a service that writes without end does not keep the others waiting.
  for (int left = kPipeBytes; left > 0;) {
    const ssize_t got = ::read(source.read_end.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    left -= static_cast<int>(got);
    const std::string_view text(buffer.data(), static_cast<size_t>(got));
    source.file.Append(text);
    for (const char c : text) {
      if (c != '\n') {
        if (source.line.size() < kKeptBytes) source.line.push_back(c);
        continue;
      }
      if (!source.line.empty()) source.last_line = std::exchange(source.line, "");
    }
  }
}

void LogCollector::CollectAll() {
  for (const auto& source : sources_) Collect(*source);
}

void LogCollector::Run() {
  while (true) {
    std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
    {
      MutexLock lock(mutex_);
      CollectAll();
      if (ending_) return;
      for (const auto& source : sources_) fds.push_back({source->read_end.get(), POLLIN, 0});
    }
    ::poll(fds.data(), fds.size(), -1);
    uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof(count));
  }
}

}  // namespace tandem
