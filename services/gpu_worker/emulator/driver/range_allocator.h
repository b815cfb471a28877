// Hands out aligned ranges of an address space, first fit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace tandem::rdna {

// Thread-compatible.
class RangeAllocator {
 public:
  // Ranges lie in [begin, end).
  RangeAllocator(uint64_t begin, uint64_t end);

  // `bytes` bytes, at least one; `alignment` is a power of two.  Empty: there is no room.
  std::optional<uint64_t> Allocate(uint64_t bytes, uint64_t alignment);
  // This range and no other; false: some of it is taken or outside.
  bool AllocateAt(uint64_t begin, uint64_t bytes);
  // REQUIRES: the range was allocated, as one.
  void Free(uint64_t begin, uint64_t bytes);
  uint64_t free_bytes() const;

 private:
  void Take(std::map<uint64_t, uint64_t>::iterator hole, uint64_t begin, uint64_t end);

  std::map<uint64_t, uint64_t> holes_;  // begin -> end
};

}  // namespace tandem::rdna
