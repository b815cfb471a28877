#include "services/common/flags/flag_checks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"

namespace tandem {

absl::Status CheckReadable(const std::string& path) {
  struct stat info {};
  if (::access(path.c_str(), R_OK) != 0 || ::stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrFormat("cannot read %s: %s", path, std::strerror(errno)));
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::NotFoundError(absl::StrFormat("%s is a folder, not a file", path));
  }
  return absl::OkStatus();
}

}  // namespace tandem
