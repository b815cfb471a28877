#include "services/gpu_worker/emulator/driver/shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

namespace tandem::rdna {
namespace {

bool IsDmabuf(int fd, bool memory_files) {
  char target[256] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), target, sizeof(target) - 1);
  if (length <= 0) return false;
  const std::string name(target, static_cast<size_t>(length));
  return name.starts_with("/dmabuf:") || (memory_files && name.starts_with("/memfd:"));
}

}  // namespace

int CheckUserMemory(const std::byte* host) {
  const auto address = reinterpret_cast<uintptr_t>(host);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0, inode = 0;
    // 7f00-7f10 rw-s 00000000 00:01 1027   /memfd:weights (deleted)
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %" SCNu64, &begin, &end,
                    &inode) != 3) {
      continue;
    }
    if (begin <= address && address < end) return inode == 0 ? 0 : EPERM;
  }
  return EFAULT;
}

MappedDmabuf MapDmabuf(int fd, bool memory_files) {
  if (!IsDmabuf(fd, memory_files)) return {};
  const off_t bytes = ::lseek(fd, 0, SEEK_END);
  if (bytes <= 0) return {};
  const auto size = static_cast<size_t>(bytes);
  void* host = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (host == MAP_FAILED) host = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (host == MAP_FAILED) return {};
  return {static_cast<std::byte*>(host), size};
}

}  // namespace tandem::rdna
