#include "tools/tandem/supervisor/rotating_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem {

std::string RotatedPath(const std::string& path, int age) {
  return age == 0 ? path : absl::StrFormat("%s.%d", path, age);
}

absl::StatusOr<RotatingFile> RotatingFile::Open(const std::string& path,
                                                const LogRotation& rotation) {
  RotatingFile file(path, rotation);
  TANDEM_RETURN_IF_ERROR(file.Reopen());
  return file;
}

absl::Status RotatingFile::Reopen() {
  fd_.Reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  struct stat info {};
  if (!fd_.valid() || ::fstat(fd_.get(), &info) != 0) {
    return absl::InternalError(absl::StrFormat("log file %s: %s", path_, std::strerror(errno)));
  }
  size_ = static_cast<uint64_t>(info.st_size);
  return absl::OkStatus();
}

void RotatingFile::Rotate() {
  for (int age = rotation_.num_old; age > 0; --age) {
    std::rename(RotatedPath(path_, age - 1).c_str(), RotatedPath(path_, age).c_str());
  }
  if (rotation_.num_old == 0) ::unlink(path_.c_str());
  // On failure the old file goes on under its new name.
  Reopen().IgnoreError();
}

void RotatingFile::Append(std::string_view text) {
  while (!text.empty()) {
    const size_t line = std::min(text.find('\n'), text.size() - 1) + 1;
    if (at_line_begin_ && size_ > 0 && size_ + line > rotation_.max_bytes) Rotate();
    // As many whole lines as fit, one at least.
    size_t piece = line;
    while (piece < text.size()) {
      const size_t next = std::min(text.find('\n', piece), text.size() - 1) + 1;
      if (size_ + next > rotation_.max_bytes) break;
      piece = next;
    }
    std::string_view left = text.substr(0, piece);
    at_line_begin_ = left.back() == '\n';
    while (!left.empty()) {
      const ssize_t written = ::write(fd_.get(), left.data(), left.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      size_ += static_cast<uint64_t>(written);
      left.remove_prefix(static_cast<size_t>(written));
    }
    text.remove_prefix(piece);
  }
}

}  // namespace tandem
