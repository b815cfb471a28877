// One group's KV blocks: who holds them, which are free, and which are kept for later.
//
//            Allocate                          Free, by the last holder
//     free -----------> held by 1, 2, ... ------------------------------> free
//       ^                    |     ^                |
//       |               Keep |     | Share          | if kept
//       |                    v     |                v
//       +----- Forget ----- kept   +------------ cached ---- Forget ----> free
//
// Several sequences may hold one block: what lies in it is then read and never written.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/worker/step_batch.h"

namespace tandem {

// Hands out block ids in [0, num_blocks).  The block freed last is handed out first, so that a
// lightly loaded server keeps touching the same memory.  Single-thread.
//
// Cached blocks are given up in the order in which they were freed, but those whose holder's window
// *passed* them before those of holders that ended, as long as they are half of what is cached: one
// long prompt does not drive out the ends of many conversations, and a new beginning still finds
// room.  A block that was shared once counts as any other when a window passes it.
class KvBlockPool {
 public:
  explicit KvBlockPool(uint32_t num_blocks);

  // A free block, held once; kNoBlock when none is free.
  uint32_t Allocate();
  // One holder more.  REQUIRES `block` is held or kept (checked).
  void Share(uint32_t block);
  // One holder less.  The last one's block becomes cached if it is kept, and free if not. `passed`:
  // by its holder's window.  REQUIRES `block` is held (checked).
  void Free(uint32_t block, bool passed = false);

  // When nobody holds it any more, it is to be cached.  REQUIRES `block` is held (checked).
  void Keep(uint32_t block);
  // The opposite: at once free if nobody holds it.  REQUIRES `block` is kept (checked).
  void Forget(uint32_t block);
  // The cached block to be given up next; kNoBlock when none is cached.
  uint32_t NextVictim() const;

  uint32_t num_holders(uint32_t block) const { return blocks_[block].num_holders; }
  bool kept(uint32_t block) const { return blocks_[block].kept; }

  uint32_t num_blocks() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t num_free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t num_cached() const { return passed_.size + ended_.size; }
  // What can be had: free, or cached and given up.
  uint32_t num_available() const { return num_free() + num_cached(); }
  uint32_t num_used() const { return num_blocks() - num_available(); }

 private:
  struct Block {
    uint32_t num_holders = 0;
    bool kept = false;
    bool shared = false;  // since it was allocated
    bool passed = false;  // which list it is in while it is cached
    uint32_t previous = kNoBlock;
    uint32_t next = kNoBlock;
  };
  // Cached blocks, those to be given up first at the head.
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
