// A log file that never grows beyond a size: "gpu.log", then "gpu.log.1" (newer) to "gpu.log.4".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"

namespace tandem {

struct LogRotation {
  uint64_t max_bytes = uint64_t{16} << 20;  // of one file; a line is never cut in two for it
  int num_old = 4;                          // files kept beside the one that is written
};

// "gpu.log.2"; age 0 is the file itself.
std::string RotatedPath(const std::string& path, int age);

// Thread-compatible.
class RotatingFile {
 public:
  // Goes on with the file that is there.  INTERNAL: it cannot be opened.
  static absl::StatusOr<RotatingFile> Open(const std::string& path, const LogRotation& rotation);
  RotatingFile(RotatingFile&&) = default;

  // Rotates first where `text` ends beyond the size.  What a full disk does not take is lost.
  void Append(std::string_view text);
  const std::string& path() const { return path_; }

 private:
  RotatingFile(std::string path, const LogRotation& rotation)
      : path_(std::move(path)), rotation_(rotation) {}
  absl::Status Reopen();
  void Rotate();

  std::string path_;
  LogRotation rotation_;
  UniqueFd fd_;
  uint64_t size_ = 0;
  bool at_line_begin_ = true;
};

}  // namespace tandem
