// A sequence's two block tables.
//
// Position p lies in entry p / block_tokens of both tables.  The global table keeps every block;
// the window table gives back those that no row to come can see:
//
//   block_tokens 4, window 6, next position 13      0   1   2   3
//     global table                                [ 9 | 4 | 7 | 2 ]
//     window table (sees 8..13)                   [ - | - | 5 | 1 ]      - is kNoBlock
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "services/common/kv/kv_block_pool.h"
#include "services/common/worker/step_batch.h"

namespace tandem {

// The pools of one replica, and how positions map to their blocks.  Single-thread.
struct KvPools {
  explicit KvPools(const StepLimits& limits)
      : block_tokens(limits.block_tokens),
        sliding_window(limits.sliding_window),
        pools{KvBlockPool(limits.num_blocks[kGlobalGroup]),
              KvBlockPool(limits.num_blocks[kWindowGroup])} {}

  uint32_t BlocksFor(uint64_t num_positions) const {
    return static_cast<uint32_t>((num_positions + block_tokens - 1) / block_tokens);
  }
  // Most blocks of the window group that a sequence holds in a step of `num_rows` of its rows.
  uint32_t WindowBlocksFor(uint32_t num_rows) const {
    return BlocksFor(uint64_t{sliding_window} + num_rows) + 1;
  }

  uint32_t block_tokens;
  uint32_t sliding_window;
  std::array<KvBlockPool, kNumKvGroups> pools;  // by KvGroup
};

// Move-only; frees what it holds on destruction.  Single-thread.
class SequenceBlocks {
 public:
  // `pools`: Borrowed; must outlive this.
  explicit SequenceBlocks(KvPools& pools) : pools_(&pools) {}
  SequenceBlocks(const SequenceBlocks&) = delete;
  SequenceBlocks& operator=(const SequenceBlocks&) = delete;
  ~SequenceBlocks() { FreeAll(); }

  // Gives back window blocks that rows from `first_position` on cannot see: exactly those whose
  // entries ParseStep lets be kNoBlock.
  void ReleaseBefore(uint32_t first_position);
  // Positions [0, n) that the blocks held and all free ones could cover.
  uint64_t NumCoverable() const;
  // Grows both tables to cover positions [0, num_positions).  False, with nothing changed, when
  // there are not enough free blocks.
  bool Extend(uint32_t num_positions);
  void FreeAll();

  // Entries of a table: equally many in both.
  std::span<const uint32_t> table(KvGroup group) const { return tables_[group]; }
  // Blocks held in a group.
  uint32_t num_held(KvGroup group) const {
    return static_cast<uint32_t>(tables_[group].size()) -
           (group == kWindowGroup ? num_released_ : 0);
  }

 private:
  KvPools* pools_;
  std::vector<uint32_t> tables_[kNumKvGroups];
  uint32_t num_released_ = 0;  // leading entries of the window table that are kNoBlock
};

}  // namespace tandem
