#include "services/npu_worker/emulator/driver/device_heap.h"

#include <sys/mman.h>

#include <cerrno>

#include "absl/strings/str_format.h"
#include "services/npu_worker/emulator/driver/profile.h"

namespace tandem::npu::emulator {

DeviceHeap::~DeviceHeap() {
  if (host_ != nullptr) ::munmap(host_, max_bytes_);
}

Errno DeviceHeap::AddChunk(int fd, uint64_t bytes, uint64_t* address) {
  if (bytes == 0 || bytes % kHeapChunkBytes != 0) {
    return Refuse(
        EINVAL, absl::StrFormat("a heap of %d bytes is no multiple of %d", bytes, kHeapChunkBytes));
  }
  if (bytes > max_bytes_ - chunk_bytes_) {
    return Refuse(ENOSPC, absl::StrFormat("heap of %d bytes and %d more: at most %d", chunk_bytes_,
                                          bytes, max_bytes_));
  }
  if (host_ == nullptr) {
    void* reserved =
        ::mmap(nullptr, max_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return Refuse(ENOMEM, "no address space for the heap");
    host_ = static_cast<std::byte*>(reserved);
  }
  if (::mmap(host_ + chunk_bytes_, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    return Refuse(ENOMEM, "a chunk of the heap cannot be mapped");
  }
  *address = kHeapAddress + chunk_bytes_;
  chunk_bytes_ += bytes;
  return 0;
}

Errno DeviceHeap::Allocate(uint64_t bytes, uint64_t* address) {
  if (bytes == 0 || bytes > max_bytes_) {
    return Refuse(EINVAL, absl::StrFormat("%d bytes of a heap of %d", bytes, max_bytes_));
  }
  uint64_t offset = 0;
  for (const auto& [start, end] : ranges_) {
    if (start - offset >= bytes && start >= offset) break;
    offset = (end + kHeapAlignment - 1) / kHeapAlignment * kHeapAlignment;
  }
  if (offset > max_bytes_ || bytes > max_bytes_ - offset) {
    return Refuse(ENOSPC, absl::StrFormat("%d bytes: %d of the heap's %d are in use", bytes,
                                          used_bytes(), max_bytes_));
  }
  // The process adds a chunk and tries again: nothing to report.
  if (offset + bytes > chunk_bytes_) return EAGAIN;
  ranges_.emplace(offset, offset + bytes);
  *address = kHeapAddress + offset;
  return 0;
}

void DeviceHeap::Free(uint64_t address) { ranges_.erase(address - kHeapAddress); }

uint64_t DeviceHeap::used_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [start, end] : ranges_) bytes += end - start;
  return bytes;
}

std::byte* DeviceHeap::Host(uint64_t address) const { return host_ + (address - kHeapAddress); }

}  // namespace tandem::npu::emulator
