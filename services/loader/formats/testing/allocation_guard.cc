#include "services/loader/formats/testing/allocation_guard.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

thread_local bool watching = false;
thread_local size_t largest_bytes = 0;

}  // namespace

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TANDEM_TSAN_ALLOCATOR 1
#endif
#endif

#ifdef TANDEM_TSAN_ALLOCATOR
// ThreadSanitizer's own operator new cannot be replaced, but watched.
#include <sanitizer/allocator_interface.h>
namespace {

const int hooks_installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void* /*memory*/, size_t bytes) {
      if (watching) largest_bytes = std::max(largest_bytes, bytes);
    },
    [](const volatile void* /*memory*/) {});

}  // namespace
#else
void* operator new(size_t bytes) {
  if (watching) largest_bytes = std::max(largest_bytes, bytes);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace tandem::loader::testing {

AllocationGuard::AllocationGuard() {
  largest_bytes = 0;
  watching = true;
}
AllocationGuard::~AllocationGuard() { watching = false; }

size_t AllocationGuard::largest() const { return largest_bytes; }

}  // namespace tandem::loader::testing
