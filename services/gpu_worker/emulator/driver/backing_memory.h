// The host memory behind buffers: one sparse file, which the driver above maps as it would map the
// kernel's device node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "services/gpu_worker/emulator/driver/range_allocator.h"

namespace tandem::rdna {

inline constexpr uint64_t kPageBytes = 4096;

// Thread-safe.
class BackingMemory {
 public:
  // Ends the process with a message if the host refuses the file or its mapping.
  explicit BackingMemory(uint64_t bytes);
  ~BackingMemory();
  BackingMemory(const BackingMemory&) = delete;
  BackingMemory& operator=(const BackingMemory&) = delete;

  // Zeroed.  Returns the offset in the file; empty: there is no room.
  std::optional<uint64_t> Allocate(uint64_t bytes, uint64_t alignment);
  // Gives the pages back to the host.
  void Free(uint64_t offset, uint64_t bytes);

  std::byte* at(uint64_t offset) const { return base_ + offset; }
  int file() const { return file_; }

 private:
  uint64_t bytes_;
  int file_ = -1;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  RangeAllocator ranges_;
};

}  // namespace tandem::rdna
