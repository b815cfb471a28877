#include "services/npu_worker/emulator/code_patch.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace tandem::npu::emulator {

bool RedirectFunction(const char* symbol, void* replacement) {
  void* const function = ::dlsym(RTLD_DEFAULT, symbol);
  if (function == nullptr) {
    std::fprintf(stderr, "npu emulator: XRT's noop device has no function %s\n", symbol);
    return false;
  }
  uint8_t jump[12] = {0x48, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xE0};  // movabs rax, x; jmp rax
  std::memcpy(jump + 2, &replacement, sizeof(replacement));
  const auto page_size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(function);
  const uintptr_t page = start & ~(page_size - 1);
  const size_t bytes = start + sizeof(jump) - page;
  if (::mprotect(reinterpret_cast<void*>(page), bytes, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
    std::fprintf(stderr, "npu emulator: redirecting %s: %s\n", symbol, std::strerror(errno));
    return false;
  }
  std::memcpy(function, jump, sizeof(jump));
  return ::mprotect(reinterpret_cast<void*>(page), bytes, PROT_READ | PROT_EXEC) == 0;
}

}  // namespace tandem::npu::emulator
