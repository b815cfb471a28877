// Memory that is not the device's own, as the kernel's driver takes it or refuses it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::rdna {

// 0, or an errno.  The kernel takes anonymous memory alone.  EPERM: `host` lies in the mapping of a
// file, and shared memory is one (amdgpu_ttm_tt_get_user_pages).  EFAULT: it lies in no mapping.
int CheckUserMemory(const std::byte* host);

// A dmabuf's memory.
struct MappedDmabuf {
  std::byte* host = nullptr;  // null: no dmabuf, or it cannot be mapped
  uint64_t bytes = 0;
};
// `memory_files`: a file of memory is taken for a dmabuf.
MappedDmabuf MapDmabuf(int fd, bool memory_files);

}  // namespace tandem::rdna
