// Buffer objects by handle, and how much of VRAM and of the system's memory they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "services/gpu_worker/emulator/driver/backing_memory.h"

namespace tandem::rdna {

enum class Domain { kVram, kGtt };

struct BufferObject {
  uint64_t bytes = 0;
  std::byte* host = nullptr;
  uint64_t offset = 0;  // in the backing memory's file; 0: memory of the caller, or a dmabuf's
  Domain domain = Domain::kGtt;
  uint64_t alignment = 0;
  uint32_t requested_domains = 0;  // AMDGPU_GEM_DOMAIN_*
  uint64_t flags = 0;              // AMDGPU_GEM_CREATE_*
  bool is_dmabuf = false;          // `host` is a mapping of its own
};

// Thread-safe.
class BufferTable {
 public:
  struct Usage {
    uint64_t vram = 0, gtt = 0;
  };

  // `backing` is borrowed and must outlive this.
  BufferTable(BackingMemory& backing, uint64_t vram_bytes, uint64_t gtt_bytes);

  // VRAM if wanted and free, else the system's memory if wanted; 0: neither has room.  Sizes are
  // rounded up to pages.
  uint32_t Create(uint64_t bytes, uint64_t alignment, bool vram, bool gtt, uint32_t domains,
                  uint64_t flags);
  // The caller's memory, which must stay until the buffer is closed.
  uint32_t Wrap(std::byte* host, uint64_t bytes);
  // A dmabuf's memory; 0: none of it (MapDmabuf), or no room.
  uint32_t Import(int fd, bool memory_files);
  // false: unknown.
  bool Close(uint32_t handle);
  std::optional<BufferObject> Find(uint32_t handle) const;

  Usage usage() const;
  const Usage& capacity() const { return capacity_; }

 private:
  BackingMemory& backing_;
  const Usage capacity_;
  mutable std::mutex mutex_;
  std::map<uint32_t, BufferObject> buffers_;
  uint32_t last_handle_ = 0;
  Usage usage_;
};

}  // namespace tandem::rdna
