#include "services/npu_worker/emulator/buffer_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAddressAlignment = 0x10000;
constexpr uint64_t kMaxBytes = uint64_t{1} << 46;

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

absl::Status ErrnoStatus(const std::string& what) {
  return absl::ResourceExhaustedError(absl::StrFormat("%s: %s", what, std::strerror(errno)));
}

absl::Status MapInto(Buffer& buffer, int protection, int flags) {
  void* host =
      ::mmap(nullptr, buffer.mapped_bytes, protection, flags, buffer.fd.get(), /*offset=*/0);
  if (host == MAP_FAILED) return ErrnoStatus(absl::StrFormat("mapping %d bytes", buffer.bytes));
  buffer.host = static_cast<std::byte*>(host);
  buffer.owns_mapping = true;
  return absl::OkStatus();
}

}  // namespace

Buffer::~Buffer() {
  if (owns_mapping) ::munmap(host, mapped_bytes);
}

absl::StatusOr<Handle> BufferTable::Allocate(uint64_t bytes, uint32_t flags, bool exportable) {
  if (bytes == 0 || bytes > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("buffer of %d bytes", bytes));
  }
  auto buffer = std::make_shared<Buffer>();
  buffer->bytes = bytes;
  buffer->mapped_bytes = AlignUp(bytes, kPage);
  buffer->flags = flags;
  int map_flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (exportable) {
    TANDEM_ASSIGN_OR_RETURN(buffer->fd, CreateSharedMemory("npu-buffer", bytes));
    map_flags = MAP_SHARED;
  }
  TANDEM_RETURN_IF_ERROR(MapInto(*buffer, PROT_READ | PROT_WRITE, map_flags));
  return Insert(std::move(buffer));
}

absl::StatusOr<Handle> BufferTable::Wrap(void* host, uint64_t bytes, uint32_t flags) {
  auto buffer = std::make_shared<Buffer>();
  buffer->host = static_cast<std::byte*>(host);
  buffer->bytes = bytes;
  buffer->flags = flags;
  return Insert(std::move(buffer));
}

absl::StatusOr<Handle> BufferTable::Import(int fd, uint32_t flags) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(absl::StrFormat("import of descriptor %d", fd));
  // A dmabuf has no size by fstat on some kernels, but does by seeking.
  const off_t size = info.st_size > 0 ? info.st_size : ::lseek(fd, 0, SEEK_END);
  if (size <= 0) {
    return absl::InvalidArgumentError(absl::StrFormat("import of descriptor %d of no size", fd));
  }
  auto buffer = std::make_shared<Buffer>();
  buffer->fd.Reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!buffer->fd.valid()) return ErrnoStatus("duplicating an imported descriptor");
  buffer->bytes = static_cast<uint64_t>(size);
  buffer->mapped_bytes = AlignUp(buffer->bytes, kPage);
  buffer->flags = flags;
  if (!MapInto(*buffer, PROT_READ | PROT_WRITE, MAP_SHARED).ok()) {
    TANDEM_RETURN_IF_ERROR(MapInto(*buffer, PROT_READ, MAP_SHARED));
  }
  return Insert(std::move(buffer));
}

absl::StatusOr<int> BufferTable::Export(Handle handle) const {
  const std::shared_ptr<Buffer> buffer = Find(handle);
  if (buffer == nullptr || !buffer->fd.valid()) {
    return absl::InvalidArgumentError(absl::StrFormat("buffer %d cannot be exported", handle));
  }
  const int fd = ::fcntl(buffer->fd.get(), F_DUPFD_CLOEXEC, 3);
  if (fd < 0) return ErrnoStatus("duplicating an exported descriptor");
  return fd;
}

void BufferTable::Free(Handle handle) {
  std::shared_ptr<Buffer> buffer;
  {
    const MutexLock lock(mutex_);
    const auto it = buffers_.find(handle);
    if (it == buffers_.end()) return;
    buffer = std::move(it->second);
    buffers_.erase(it);
  }
  space_.Remove(buffer->address);
}

std::shared_ptr<Buffer> BufferTable::Find(Handle handle) const {
  const MutexLock lock(mutex_);
  const auto it = buffers_.find(handle);
  return it == buffers_.end() ? nullptr : it->second;
}

absl::StatusOr<Handle> BufferTable::Insert(std::shared_ptr<Buffer> buffer) {
  const MutexLock lock(mutex_);
  buffer->address = next_address_;
  TANDEM_RETURN_IF_ERROR(space_.Add(buffer->address, buffer->host, buffer->bytes));
  // A gap after every buffer, so that running off its end meets nothing.
  next_address_ += AlignUp(buffer->bytes, kAddressAlignment) + kAddressAlignment;
  const Handle handle = next_handle_++;
  buffers_.emplace(handle, std::move(buffer));
  return handle;
}

}  // namespace tandem::npu::emulator
