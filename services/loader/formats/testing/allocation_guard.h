// Watches the C++ heap while a parser reads a hostile file.
#pragma once

#include <cstddef>

namespace tandem::loader::testing {

// While one lives, notes the largest single allocation of this thread through operator new.
// Works in any binary that links this library's replacement of operator new.
class AllocationGuard {
 public:
  AllocationGuard();
  ~AllocationGuard();
  AllocationGuard(const AllocationGuard&) = delete;
  AllocationGuard& operator=(const AllocationGuard&) = delete;

  size_t largest() const;
};

}  // namespace tandem::loader::testing
