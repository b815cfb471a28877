#include "services/npu_worker/emulator/driver/client_buffers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kGap = uint64_t{1} << 20;
constexpr char kMemoryName[] = "npu-driver-buffer";

uint64_t Pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

Errno Map(ClientBuffer& buffer, int protection) {
  void* host = ::mmap(nullptr, buffer.bytes, protection, MAP_SHARED, buffer.fd.get(), 0);
  if (host == MAP_FAILED) return ENOMEM;
  buffer.host = static_cast<std::byte*>(host);
  buffer.owns_mapping = true;
  struct stat info {};
  if (::fstat(buffer.fd.get(), &info) == 0) buffer.inode = info.st_ino;
  return 0;
}

// A kernel imports dmabufs alone.  Buffers that an emulated driver exported, in this process or
// another, take their place; memory files do if NPU_EMU_ALLOW_MEMFD is set.
bool IsDmabuf(int fd) {
  char target[256] = {};
  const std::string link = absl::StrFormat("/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link.c_str(), target, sizeof(target) - 1);
  if (length <= 0) return false;
  const std::string name(target, static_cast<size_t>(length));
  return absl::StrContains(name, kMemoryName) || absl::StrContains(name, "dmabuf") ||
         ::getenv("NPU_EMU_ALLOW_MEMFD") != nullptr;
}

}  // namespace

ClientBuffer::~ClientBuffer() {
  if (owns_mapping) ::munmap(host, bytes);
}

ClientBuffers::ClientBuffers(const DriverProfile& profile, AddressSpace& space)
    : space_(space), heap_(profile.max_heap_bytes) {}

ClientBuffers::~ClientBuffers() {
  std::map<uint32_t, std::shared_ptr<ClientBuffer>> buffers;
  {
    const MutexLock lock(mutex_);
    buffers.swap(buffers_);
  }
  buffers.clear();  // calls Forget
}

void ClientBuffers::Forget(ClientBuffer* buffer) {
  if (buffer->kind != BufferKind::kHeap) space_.Remove(buffer->address);
  if (buffer->kind == BufferKind::kDevice) {
    const MutexLock lock(mutex_);
    heap_.Free(buffer->address);
  }
  delete buffer;
}

Errno ClientBuffers::CreateInHeap(ClientBuffer& buffer) {
  if (heap_.empty()) return EAGAIN;
  const Errno error = heap_.Allocate(buffer.bytes, &buffer.address);
  if (error == 0) buffer.host = heap_.Host(buffer.address);
  return error;
}

Errno ClientBuffers::Create(BufferKind kind, uint64_t bytes, uint32_t* handle) {
  auto buffer = std::make_unique<ClientBuffer>();
  buffer->kind = kind;
  buffer->bytes = Pages(bytes);
  if (bytes == 0 || bytes > (uint64_t{1} << 46)) {
    return Refuse(EINVAL, absl::StrFormat("a buffer of %d bytes", bytes));
  }
  const MutexLock lock(mutex_);
  if (kind == BufferKind::kDevice) {
    if (const Errno error = CreateInHeap(*buffer); error != 0) return error;
    return Publish(std::move(buffer), handle);
  }
  buffer->fd.Reset(::memfd_create(kMemoryName, MFD_CLOEXEC));
  if (!buffer->fd.valid() ||
      ::ftruncate(buffer->fd.get(), static_cast<off_t>(buffer->bytes)) != 0 ||
      Map(*buffer, PROT_READ | PROT_WRITE) != 0) {
    return Refuse(ENOMEM, absl::StrFormat("a buffer of %d bytes: %s", bytes, std::strerror(errno)));
  }
  if (kind == BufferKind::kHeap) {
    const Errno error = heap_.AddChunk(buffer->fd.get(), bytes, &buffer->address);
    if (error != 0) return error;
  }
  return Publish(std::move(buffer), handle);
}

Errno ClientBuffers::Wrap(void* memory, uint64_t bytes, uint32_t* handle) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (address % kPage != 0 || bytes == 0 || bytes % kPage != 0) {
    return Refuse(EINVAL,
                  absl::StrFormat("user memory at %#x, %d bytes: not whole pages", address, bytes));
  }
  auto buffer = std::make_unique<ClientBuffer>();
  buffer->bytes = bytes;
  buffer->host = static_cast<std::byte*>(memory);
  buffer->user_memory = true;
  const MutexLock lock(mutex_);
  return Publish(std::move(buffer), handle);
}

Errno ClientBuffers::Import(int fd, uint32_t* handle) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Refuse(EBADF, absl::StrFormat("import of descriptor %d", fd));
  if (!IsDmabuf(fd)) {
    return Refuse(EINVAL, absl::StrFormat("import of descriptor %d, which is no dmabuf", fd));
  }
  const MutexLock lock(mutex_);
  for (const auto& [known, buffer] : buffers_) {
    if (!buffer->fd.valid() || buffer->inode != info.st_ino) continue;
    *handle = known;
    return 0;
  }
  auto buffer = std::make_unique<ClientBuffer>();
  const off_t size = info.st_size > 0 ? info.st_size : ::lseek(fd, 0, SEEK_END);
  buffer->bytes = size > 0 ? Pages(static_cast<uint64_t>(size)) : 0;
  buffer->fd.Reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (buffer->bytes == 0 || !buffer->fd.valid()) {
    return Refuse(EINVAL, absl::StrFormat("import of descriptor %d of %d bytes", fd, size));
  }
  // Sealed weight regions can only be read.
  if (Map(*buffer, PROT_READ | PROT_WRITE) != 0 && Map(*buffer, PROT_READ) != 0) {
    return Refuse(ENOMEM, absl::StrFormat("import of descriptor %d: %s", fd, std::strerror(errno)));
  }
  return Publish(std::move(buffer), handle);
}

Errno ClientBuffers::Export(uint32_t handle, int* fd) const {
  const std::shared_ptr<ClientBuffer> buffer = Find(handle);
  if (buffer == nullptr) return Refuse(ENOENT, absl::StrFormat("export of buffer %d", handle));
  if (!buffer->fd.valid()) {
    return Refuse(EOPNOTSUPP, absl::StrFormat("buffer %d cannot be exported", handle));
  }
  *fd = ::fcntl(buffer->fd.get(), F_DUPFD_CLOEXEC, 3);
  return *fd < 0 ? errno : 0;
}

Errno ClientBuffers::Close(uint32_t handle) {
  std::shared_ptr<ClientBuffer> buffer;
  {
    const MutexLock lock(mutex_);
    const auto found = buffers_.find(handle);
    if (found == buffers_.end()) return Refuse(EINVAL, absl::StrFormat("no buffer %d", handle));
    buffer = std::move(found->second);
    buffers_.erase(found);
  }
  // The process may unmap its own memory now, so the device must not reach it.
  if (buffer->user_memory) space_.Remove(buffer->address);
  return 0;
}

std::shared_ptr<ClientBuffer> ClientBuffers::Find(uint32_t handle) const {
  const MutexLock lock(mutex_);
  const auto found = buffers_.find(handle);
  return found == buffers_.end() ? nullptr : found->second;
}

std::shared_ptr<ClientBuffer> ClientBuffers::FindByOffset(uint64_t map_offset) const {
  const MutexLock lock(mutex_);
  for (const auto& [handle, buffer] : buffers_) {
    if (buffer->map_offset == map_offset) return buffer;
  }
  return nullptr;
}

bool ClientBuffers::has_heap() const {
  const MutexLock lock(mutex_);
  return !heap_.empty();
}

Errno ClientBuffers::Publish(std::unique_ptr<ClientBuffer> buffer, uint32_t* handle) {
  if (buffer->address == kNoAddress) {
    buffer->address = next_address_;
    next_address_ += (buffer->bytes + kGap - 1) / kGap * kGap + kGap;
  }
  if (buffer->kind != BufferKind::kDevice) {
    buffer->map_offset = next_offset_;
    next_offset_ += buffer->bytes + kPage;
  }
  // The device sees of the heap what buffers in it hold.
  if (buffer->kind != BufferKind::kHeap) {
    const absl::Status added = space_.Add(buffer->address, buffer->host, buffer->bytes);
    if (!added.ok()) return Refuse(EINVAL, std::string(added.message()));
  }
  *handle = next_handle_++;
  buffers_.emplace(*handle, std::shared_ptr<ClientBuffer>(
                                buffer.release(), [this](ClientBuffer* gone) { Forget(gone); }));
  return 0;
}

}  // namespace tandem::npu::emulator
