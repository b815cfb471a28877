// The free list of one group's KV blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/worker/step_batch.h"

namespace tandem {

// Hands out block ids in [0, num_blocks).  The block freed last is handed out first, so that a
// lightly loaded server keeps touching the same memory.  Single-thread.
class KvBlockPool {
 public:
  explicit KvBlockPool(uint32_t num_blocks);

  // A block nobody else holds; kNoBlock when none is free.
  uint32_t Allocate();
  // REQUIRES `block` was allocated and not freed since (checked).
  void Free(uint32_t block);

  uint32_t num_blocks() const { return static_cast<uint32_t>(in_use_.size()); }
  uint32_t num_free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t num_used() const { return num_blocks() - num_free(); }

 private:
  std::vector<uint32_t> free_;  // a stack
  std::vector<bool> in_use_;    // [num_blocks]
};

}  // namespace tandem
