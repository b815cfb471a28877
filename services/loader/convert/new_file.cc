#include "services/loader/convert/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem::loader {
namespace {

absl::Status FileError(const std::string& path, int error) {
  const std::string message = absl::StrFormat("%s: %s", path, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(message);
  }
  return error == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
}

}  // namespace

absl::Status AlreadyThere(const std::string& path) {
  return absl::AlreadyExistsError(
      absl::StrFormat("%s is there already: --force replaces it, or choose another name", path));
}

absl::StatusOr<NewFile> NewFile::Create(const std::string& path, uint64_t bytes) {
  NewFile file(path);
  file.temporary_ = absl::StrFormat("%s.%d.part", path, ::getpid());
  file.fd_ = UniqueFd(
      ::open(file.temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.fd_.valid()) return FileError(file.temporary_, errno);
  const int error = ::posix_fallocate(file.fd_.get(), 0, static_cast<off_t>(bytes));
  if (error != 0) return FileError(file.temporary_, error);
  return file;
}

NewFile::~NewFile() {
  if (fd_.valid()) ::unlink(temporary_.c_str());
}

absl::Status NewFile::Write(const void* data, uint64_t bytes, uint64_t offset) const {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd_.get(), next, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(temporary_, errno);
    next += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

absl::Status NewFile::Publish(bool overwrite) {
  if (::fsync(fd_.get()) != 0) return FileError(temporary_, errno);
  // link() refuses to replace, rename() does not ask.
  if (overwrite ? ::rename(temporary_.c_str(), path_.c_str()) != 0
                : ::link(temporary_.c_str(), path_.c_str()) != 0) {
    if (errno == EEXIST) return AlreadyThere(path_);
    return FileError(path_, errno);
  }
  if (overwrite) fd_.Reset();
  return absl::OkStatus();
}

}  // namespace tandem::loader
