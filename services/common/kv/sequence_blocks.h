// A sequence's two block tables.
//
// Position p lies in entry p / block_tokens of both tables.  The global table keeps every block.
// The window table frees blocks that no later row can see:
//
//   block_tokens 4, window 6, next position 13      0   1   2   3
//     global table                                [ 9 | 4 | 7 | 2 ]
//     window table (sees 8..13)                   [ - | - | 5 | 1 ]      - is kNoBlock
//
// Whole blocks whose rows are computed can be *published*: other sequences with the same prefix
// then share them, and without holders they stay cached (KvBlockPool) until evicted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/kv/kv_pools.h"
#include "services/common/step/step_batch.h"

namespace tandem {

// Move-only; frees what it holds on destruction.  Single-thread.
class SequenceBlocks {
 public:
  // `pools`: Borrowed; must outlive this.  `publishes`: whether Publish is going to be called; a
  // block is then only given back when it is published, or when ReleaseUnpublished says so.
  // `scope`: PrefixTree.
  explicit SequenceBlocks(KvPools& pools, bool publishes = false, uint64_t scope = 0)
      : pools_(&pools), publishes_(publishes), scope_(scope) {}
  SequenceBlocks(const SequenceBlocks&) = delete;
  SequenceBlocks& operator=(const SequenceBlocks&) = delete;
  ~SequenceBlocks() { FreeAll(); }

  // Holds the blocks of a prefix that KvPools::Find has just found.  REQUIRES both tables are empty
  // (checked).
  void Share(const CachedPrefix& prefix);
  // Frees the window blocks that rows from `first_position` on cannot see: exactly those whose
  // entries ParseStep allows to be kNoBlock.  `picture_first`: the first position of the picture
  // that `first_position` lies within, which its rows see whatever the window.
  void ReleaseBefore(uint32_t first_position, uint32_t picture_first);
  void ReleaseBefore(uint32_t first_position) { ReleaseBefore(first_position, first_position); }
  // Frees the blocks that ReleaseBefore kept because they were not published; false if there are
  // none.
  bool ReleaseUnpublished();
  // Positions [0, n) that the blocks held and all available ones could cover.
  uint64_t NumCoverable() const;
  // Grows both tables to cover positions [0, num_positions).  False, with nothing changed, when
  // there are not enough blocks available.
  bool Extend(uint32_t num_positions);
  // Grows both tables to `num_entries`, for blocks that are filled from elsewhere: without window
  // blocks before entry `first_window`.  False, with nothing changed, when there are not enough
  // blocks available.
  bool ExtendCopied(uint32_t num_entries, uint32_t first_window);
  // Publishes the whole blocks of the first positions, whose rows are computed with `tokens`.
  void Publish(std::span<const uint32_t> tokens);
  // Whether some of the first `num_blocks` blocks are still unpublished, and will be published.
  bool WillPublish(uint32_t num_blocks) const {
    return publishing() && num_published_ < num_blocks;
  }
  // Leading blocks that are published.
  uint32_t num_published() const { return publishing() ? num_published_ : 0; }
  // Whether KvPools::ForgetAll was called since the first block was taken: none is published any more.
  bool forgotten() const { return publishes_ && !publishing() && !tables_[kGlobalGroup].empty(); }
  // Frees all blocks, the last first, so that a prefix outlives what follows it.
  void FreeAll();

  // Entries of a table: equally many in both.
  std::span<const uint32_t> table(KvGroup group) const { return tables_[group]; }
  // Blocks held in a group.
  uint32_t num_held(KvGroup group) const {
    return static_cast<uint32_t>(tables_[group].size()) -
           (group == kWindowGroup ? num_released_ : 0);
  }

 private:
  bool publishing() const { return publishes_ && epoch_ == pools_->epoch; }
  void ReleaseTo(uint32_t end);
  // Prompts part after the first `end` blocks: rows from there on see the last of them.
  void MarkForkBefore(uint32_t end);

  KvPools* pools_;
  bool publishes_;
  uint64_t scope_;
  uint64_t epoch_ = 0;  // of the pools when the first block was taken
  std::vector<uint32_t> tables_[kNumKvGroups];
  uint32_t num_released_ = 0;   // leading entries of the window table that are kNoBlock
  uint32_t num_unseen_ = 0;     // leading entries of the window table that no row to come can see
  uint32_t num_published_ = 0;  // leading entries: their global blocks are nodes of the tree
};

}  // namespace tandem
