// Buffer objects of a process on the emulated driver: handles, memory, device addresses.
//
// Shared and command buffers are memory files of their own, at addresses with gaps between them, so
// that a device access past a buffer's end meets nothing.  Device buffers lie in the heap.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/common/base/unique_fd.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/driver/device_heap.h"
#include "services/npu_worker/emulator/driver/profile.h"

namespace tandem::npu::emulator {

// The numbers are the driver's interface.
enum class BufferKind : uint32_t { kShared = 1, kHeap = 2, kDevice = 3, kCommand = 4 };

inline constexpr uint64_t kNoAddress = ~uint64_t{0};

struct ClientBuffer {
  ~ClientBuffer();
  BufferKind kind = BufferKind::kShared;
  uint64_t bytes = 0;  // whole pages
  uint64_t address = kNoAddress;
  uint64_t map_offset = kNoAddress;  // for mmap; device buffers are seen through the heap's mapping
  std::byte* host = nullptr;
  UniqueFd fd;      // invalid for user memory and device buffers
  ino_t inode = 0;  // of fd
  bool owns_mapping = false;
  bool user_memory = false;
};

// Thread-safe.  Outlives the buffers that it gives.
class ClientBuffers {
 public:
  ClientBuffers(const DriverProfile& profile, AddressSpace& space);  // Borrowed; must outlive this
  ~ClientBuffers();

  // EINVAL: no bytes, or a heap of no whole chunks; ENOSPC, EAGAIN: DeviceHeap::Allocate.
  Errno Create(BufferKind kind, uint64_t bytes, uint32_t* handle) ABSL_LOCKS_EXCLUDED(mutex_);
  // A shared buffer over the process's own memory, whole pages.  Borrowed until Close.
  Errno Wrap(void* memory, uint64_t bytes, uint32_t* handle) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same handle for a descriptor of a buffer that the process has.  EINVAL: not a dmabuf.
  Errno Import(int fd, uint32_t* handle) ABSL_LOCKS_EXCLUDED(mutex_);
  Errno Export(uint32_t handle, int* fd) const ABSL_LOCKS_EXCLUDED(mutex_);
  // A command that was submitted with the buffer keeps its memory.  EINVAL: no such buffer.
  Errno Close(uint32_t handle) ABSL_LOCKS_EXCLUDED(mutex_);

  // nullptr: no such buffer.
  std::shared_ptr<ClientBuffer> Find(uint32_t handle) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<ClientBuffer> FindByOffset(uint64_t map_offset) const ABSL_LOCKS_EXCLUDED(mutex_);
  bool has_heap() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Errno CreateInHeap(ClientBuffer& buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the buffer an address and a handle.
  Errno Publish(std::unique_ptr<ClientBuffer> buffer, uint32_t* handle)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called when nobody holds the buffer any more.
  void Forget(ClientBuffer* buffer) ABSL_LOCKS_EXCLUDED(mutex_);

  AddressSpace& space_;
  mutable Mutex mutex_;
  DeviceHeap heap_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, std::shared_ptr<ClientBuffer>> buffers_ ABSL_GUARDED_BY(mutex_);
  uint32_t next_handle_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_address_ ABSL_GUARDED_BY(mutex_) = 0x7000000000;
  uint64_t next_offset_ ABSL_GUARDED_BY(mutex_) = 0x100000000;
};

}  // namespace tandem::npu::emulator
