#include "services/gpu_worker/emulator/driver/backing_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tandem::rdna {
namespace {

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "gpu emulator: %s for the GPU's memory: %s\n", what, std::strerror(errno));
  std::exit(2);
}

// Offset zero stays free: the driver takes it for none.
constexpr uint64_t kFirst = 1 << 21;

}  // namespace

BackingMemory::BackingMemory(uint64_t bytes)
    : bytes_(kFirst + bytes), ranges_(kFirst, kFirst + bytes) {
  file_ = ::memfd_create("emulated-radeon", MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes_)) != 0) Die("no file");
  void* base =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (base == MAP_FAILED) Die("no mapping");
  base_ = static_cast<std::byte*>(base);
}

BackingMemory::~BackingMemory() {
  ::munmap(base_, bytes_);
  ::close(file_);
}

std::optional<uint64_t> BackingMemory::Allocate(uint64_t bytes, uint64_t alignment) {
  const std::scoped_lock lock(mutex_);
  return ranges_.Allocate(bytes, alignment);
}

void BackingMemory::Free(uint64_t offset, uint64_t bytes) {
  if (::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes)) != 0) {
    std::memset(at(offset), 0, bytes);
  }
  const std::scoped_lock lock(mutex_);
  ranges_.Free(offset, bytes);
}

}  // namespace tandem::rdna
