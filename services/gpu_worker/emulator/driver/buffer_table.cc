#include "services/gpu_worker/emulator/driver/buffer_table.h"

#include <sys/mman.h>

#include <algorithm>

#include "services/gpu_worker/emulator/driver/shared_memory.h"

namespace tandem::rdna {
BufferTable::BufferTable(BackingMemory& backing, uint64_t vram_bytes, uint64_t gtt_bytes)
    : backing_(backing), capacity_{vram_bytes, gtt_bytes} {}

uint32_t BufferTable::Create(uint64_t bytes, uint64_t alignment, bool vram, bool gtt,
                             uint32_t domains, uint64_t flags) {
  if (bytes == 0 || bytes > capacity_.vram + capacity_.gtt) return 0;
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  alignment = std::max(alignment, kPageBytes);
  if ((alignment & (alignment - 1)) != 0) return 0;
  const std::scoped_lock lock(mutex_);
  Domain domain;
  if (vram && bytes <= capacity_.vram - usage_.vram) {
    domain = Domain::kVram;
  } else if (gtt && bytes <= capacity_.gtt - usage_.gtt) {
    domain = Domain::kGtt;
  } else {
    return 0;
  }
  const std::optional<uint64_t> offset = backing_.Allocate(bytes, alignment);
  if (!offset.has_value()) return 0;
  (domain == Domain::kVram ? usage_.vram : usage_.gtt) += bytes;
  buffers_[++last_handle_] = {.bytes = bytes,
                              .host = backing_.at(*offset),
                              .offset = *offset,
                              .domain = domain,
                              .alignment = alignment,
                              .requested_domains = domains,
                              .flags = flags};
  return last_handle_;
}

uint32_t BufferTable::Wrap(std::byte* host, uint64_t bytes) {
  if (host == nullptr || bytes == 0) return 0;
  const std::scoped_lock lock(mutex_);
  if (bytes > capacity_.gtt - usage_.gtt) return 0;
  usage_.gtt += bytes;
  buffers_[++last_handle_] = {.bytes = bytes, .host = host};
  return last_handle_;
}

uint32_t BufferTable::Import(int fd, bool memory_files) {
  constexpr uint32_t kGttDomain = 2;  // AMDGPU_GEM_DOMAIN_GTT
  const MappedDmabuf mapped = MapDmabuf(fd, memory_files);
  if (mapped.host == nullptr) return 0;
  const std::scoped_lock lock(mutex_);
  if (mapped.bytes > capacity_.gtt - usage_.gtt) {
    ::munmap(mapped.host, mapped.bytes);
    return 0;
  }
  usage_.gtt += mapped.bytes;
  buffers_[++last_handle_] = {.bytes = mapped.bytes,
                              .host = mapped.host,
                              .requested_domains = kGttDomain,
                              .is_dmabuf = true};
  return last_handle_;
}

bool BufferTable::Close(uint32_t handle) {
  const std::scoped_lock lock(mutex_);
  const auto it = buffers_.find(handle);
  if (it == buffers_.end()) return false;
  const BufferObject& buffer = it->second;
  (buffer.domain == Domain::kVram ? usage_.vram : usage_.gtt) -= buffer.bytes;
  if (buffer.offset != 0) backing_.Free(buffer.offset, buffer.bytes);
  if (buffer.is_dmabuf) ::munmap(buffer.host, buffer.bytes);
  buffers_.erase(it);
  return true;
}

std::optional<BufferObject> BufferTable::Find(uint32_t handle) const {
  const std::scoped_lock lock(mutex_);
  const auto it = buffers_.find(handle);
  if (it == buffers_.end()) return std::nullopt;
  return it->second;
}

BufferTable::Usage BufferTable::usage() const {
  const std::scoped_lock lock(mutex_);
  return usage_;
}

}  // namespace tandem::rdna
