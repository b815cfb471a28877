// One group's KV blocks: held (by how many sequences), cached or free.
//
//            Allocate                          Free, by the last holder
//     free -----------> held by 1, 2, ... ------------------------------> free
//       ^                    |     ^                |
//       |               Keep |     | Share          | if kept
//       |                    v     |                v
//       +----- Forget ----- kept   +------------ cached ---- Forget ----> free
//
// Several sequences may hold one block: it is then read and never written.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/step/step_batch.h"

namespace tandem {

// Hands out block ids in [0, num_blocks).  The block freed last is handed out first, so that a
// lightly loaded server keeps touching the same memory.  Single-thread.
//
// Cached blocks are evicted in the order in which they were freed.  Blocks that their holder's
// window *passed* go before blocks of holders that ended, while they are at least an eighth of the
// cache: nothing continues after them but a prompt that parts from theirs there.  So the windows
// that conversations leave behind do not evict the ends that they continue from.  A block before a
// *fork*, where prompts have parted, is never counted as passed.
class KvBlockPool {
 public:
  explicit KvBlockPool(uint32_t num_blocks);

  // A free block, held once; kNoBlock when none is free.
  uint32_t Allocate();
  // Adds a holder.  REQUIRES `block` is held or kept (checked).
  void Share(uint32_t block);
  // Removes a holder.  Without holders a block is cached if it is kept, else free.  `passed`: its
  // holder's window passed it.  REQUIRES `block` is held (checked).
  void Free(uint32_t block, bool passed = false);

  // Caches the block once it has no holder.  REQUIRES `block` is held (checked).
  void Keep(uint32_t block);
  // Prompts part where the block's window ends.  REQUIRES `block` is held or kept (checked).
  void MarkFork(uint32_t block);
  // Undoes Keep; a block without holders is free at once.  REQUIRES `block` is kept (checked).
  void Forget(uint32_t block);
  // The next cached block to evict; kNoBlock if the cache is empty.
  uint32_t NextVictim() const;

  uint32_t num_holders(uint32_t block) const { return blocks_[block].num_holders; }
  bool kept(uint32_t block) const { return blocks_[block].kept; }

  uint32_t num_blocks() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t num_free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t num_cached() const { return passed_.size + ended_.size; }
  // Blocks that Allocate can use: free, or cached and then evicted.
  uint32_t num_available() const { return num_free() + num_cached(); }
  uint32_t num_used() const { return num_blocks() - num_available(); }

 private:
  struct Block {
    uint32_t num_holders = 0;
    bool kept = false;
    bool at_fork = false;  // since it was allocated
    bool passed = false;   // which list it is in while it is cached
    uint32_t previous = kNoBlock;
    uint32_t next = kNoBlock;
  };
  // Cached blocks; the head is evicted first.
  struct List {
    uint32_t head = kNoBlock;
    uint32_t tail = kNoBlock;
    uint32_t size = 0;
  };

  List& ListOf(const Block& block) { return block.passed ? passed_ : ended_; }
  void Append(uint32_t id);
  void Unlink(uint32_t id);

  std::vector<Block> blocks_;
  std::vector<uint32_t> free_;  // a stack
  List passed_;
  List ended_;
};

}  // namespace tandem
