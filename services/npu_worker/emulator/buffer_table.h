// Buffer objects of the emulated device: handles, their memory, their device addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "services/common/base/mutex.h"
#include "services/common/base/unique_fd.h"
#include "services/npu_worker/emulator/address_space.h"

namespace tandem::npu::emulator {

using Handle = uint32_t;

struct Buffer {
  ~Buffer();
  UniqueFd fd;  // of shared buffers; invalid for command and user-pointer buffers
  std::byte* host = nullptr;
  uint64_t bytes = 0;  // as asked for
  uint64_t mapped_bytes = 0;
  uint64_t address = 0;
  uint32_t flags = 0;
  bool owns_mapping = false;
};

// Thread-safe.
class BufferTable {
 public:
  explicit BufferTable(AddressSpace& space) : space_(space) {}  // Borrowed; must outlive this

  // A fresh, zeroed buffer.  `exportable`: backed by a memfd (costs a descriptor).
  absl::StatusOr<Handle> Allocate(uint64_t bytes, uint32_t flags, bool exportable);
  // The caller's own memory.  Borrowed until Free.
  absl::StatusOr<Handle> Wrap(void* host, uint64_t bytes, uint32_t flags);
  // Memory behind a descriptor (memfd or dmabuf), mapped read-write or else read-only.
  absl::StatusOr<Handle> Import(int fd, uint32_t flags);
  // A new descriptor of the buffer's memory.
  absl::StatusOr<int> Export(Handle handle) const;
  void Free(Handle handle);

  // nullptr when there is no such buffer.
  std::shared_ptr<Buffer> Find(Handle handle) const;

 private:
  absl::StatusOr<Handle> Insert(std::shared_ptr<Buffer> buffer);

  AddressSpace& space_;
  mutable Mutex mutex_;
  std::map<Handle, std::shared_ptr<Buffer>> buffers_ ABSL_GUARDED_BY(mutex_);
  Handle next_handle_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_address_ ABSL_GUARDED_BY(mutex_) = 0x4000000;
};

}  // namespace tandem::npu::emulator
