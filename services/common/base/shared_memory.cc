#include "services/common/base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

absl::Status ErrnoStatus(const std::string& what) {
  const int error = errno;
  const std::string message = absl::StrFormat("%s: %s", what, std::strerror(error));
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

}  // namespace

absl::StatusOr<Mapping> Mapping::Map(int fd, size_t bytes, Access access) {
  TANDEM_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileSize(fd));
  if (bytes == 0 || bytes > file_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("mapping of %d bytes asked of an object of %d bytes", bytes, file_bytes));
  }
  const int protection = access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return ErrnoStatus(absl::StrFormat("mmap of %d bytes", bytes));
  return Mapping(static_cast<std::byte*>(data), bytes);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) ::munmap(data_, size_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

absl::StatusOr<UniqueFd> CreateSharedMemory(const std::string& name, size_t bytes) {
  if (bytes == 0) {
    return absl::InvalidArgumentError(absl::StrFormat("shared memory '%s' of 0 bytes", name));
  }
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(absl::StrFormat("memfd_create '%s'", name));
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t rounded = (bytes + page - 1) / page * page;
  if (::ftruncate(fd.get(), static_cast<off_t>(rounded)) != 0) {
    return ErrnoStatus(absl::StrFormat("ftruncate of '%s' to %d bytes", name, rounded));
  }
  return fd;
}

absl::Status SealSize(int fd) {
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus("sealing a shared-memory object");
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ReopenReadOnly(int fd) {
  const std::string path = absl::StrFormat("/proc/self/fd/%d", fd);
  UniqueFd copy(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!copy.valid()) return ErrnoStatus(absl::StrFormat("reopening %s read-only", path));
  return copy;
}

absl::StatusOr<uint64_t> FileSize(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(absl::StrFormat("fstat of descriptor %d", fd));
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace tandem
