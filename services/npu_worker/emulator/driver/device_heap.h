// The part of memory that the NPU's controller reads instructions and array configurations from.
//
// A process has one heap.  It consists of chunks that the process makes (64 MiB each) and maps side by
// side; buffers of the kind "device" are ranges in it and may cross chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "services/npu_worker/emulator/driver/refusal.h"

namespace tandem::npu::emulator {

// Thread-compatible.
class DeviceHeap {
 public:
  explicit DeviceHeap(uint64_t max_bytes) : max_bytes_(max_bytes) {}
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  // Adds the memory behind `fd`.  EINVAL: `bytes` is no multiple of a chunk; ENOSPC: more than
  // `max_bytes` in all.  `*address`: where the device sees the chunk.
  Errno AddChunk(int fd, uint64_t bytes, uint64_t* address);
  // A range of `bytes`.  EINVAL: more than the heap can ever hold; ENOSPC: no room below
  // `max_bytes`; EAGAIN: room only in chunks that have not been added.
  Errno Allocate(uint64_t bytes, uint64_t* address);
  // `address`: what Allocate gave.
  void Free(uint64_t address);

  bool empty() const { return chunk_bytes_ == 0; }
  uint64_t used_bytes() const;
  // The host's view of a device address in it.
  std::byte* Host(uint64_t address) const;

 private:
  const uint64_t max_bytes_;
  std::byte* host_ = nullptr;  // `max_bytes_` of reserved address space, once there is a chunk
  uint64_t chunk_bytes_ = 0;   // of all chunks
  std::map<uint64_t, uint64_t> ranges_;  // offset: end
};

}  // namespace tandem::npu::emulator
