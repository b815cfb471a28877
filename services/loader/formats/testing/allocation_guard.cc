#include "services/loader/formats/testing/allocation_guard.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

thread_local bool watching = false;
thread_local size_t largest_bytes = 0;

}  // namespace

void* operator new(size_t bytes) {
  if (watching) largest_bytes = std::max(largest_bytes, bytes);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tandem::loader::testing {

AllocationGuard::AllocationGuard() {
  largest_bytes = 0;
  watching = true;
}
AllocationGuard::~AllocationGuard() { watching = false; }

size_t AllocationGuard::largest() const { return largest_bytes; }

}  // namespace tandem::loader::testing
