// The KV blocks of one replica: a pool for each group, and which blocks hold which prefixes of
// sequences.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "services/common/kv/kv_block_pool.h"
#include "services/common/kv/prefix_tree.h"
#include "services/common/step/step_batch.h"

namespace tandem {

// A prefix in the cache: whole blocks, and the blocks of the window group that later rows can see.
struct CachedPrefix {
  std::vector<uint32_t> nodes;  // of the tree, from the first
  uint32_t first_window = 0;    // nodes[first_window..] still have their window blocks
};

// Single-thread.
struct KvPools {
  explicit KvPools(const StepLimits& limits)
      : block_tokens(limits.block_tokens),
        sliding_window(limits.sliding_window),
        pools{KvBlockPool(limits.num_blocks[kGlobalGroup]),
              KvBlockPool(limits.num_blocks[kWindowGroup])},
        tree(std::make_unique<PrefixTree>(limits)) {}

  // New pools, with everything free.  REQUIRES nobody holds a block.
  void Reset(const StepLimits& limits);

  uint32_t BlocksFor(uint64_t num_positions) const {
    return static_cast<uint32_t>((num_positions + block_tokens - 1) / block_tokens);
  }
  // Most blocks of the window group that a sequence needs in a step of `num_rows` of its rows.
  uint32_t WindowBlocksFor(uint32_t num_rows) const {
    return BlocksFor(uint64_t{sliding_window} + num_rows) + 1;
  }

  // A block held once: a free one, or else the next cached one to evict.  kNoBlock if every block
  // is held.
  uint32_t Allocate(KvGroup group);

  // The longest cached prefix of `tokens` that a sequence can continue from, at most
  // `max_positions`.  Overwrites `found`.
  void Find(uint64_t scope, std::span<const uint32_t> tokens, uint64_t max_positions,
            CachedPrefix& found) const;
  // The longest cached prefix of `tokens` whose blocks from number `first_window` on have their window
  // blocks; a sequence can continue from more blocks alone.  Overwrites `found`.
  void FindBlocks(uint64_t scope, std::span<const uint32_t> tokens, uint32_t first_window,
                  CachedPrefix& found) const;
  // Extends `found` to the window blocks from position `first_seen` on, which later rows see too.
  // False, with nothing changed, if one of them is gone.
  bool FindWindowFrom(uint32_t first_seen, CachedPrefix& found) const;
  // Blocks of `found` in a group that no sequence holds.  They count as available until shared.
  uint32_t NumUnheld(const CachedPrefix& found, KvGroup group) const;

  // Lets other sequences find a whole block after `parent` (PrefixTree): `global`, and `window`
  // unless it is kNoBlock.  If the tree has a block for these tokens already, the sequence then
  // holds that block in place of its own; earlier steps may still read its own.
  void Publish(uint64_t parent, std::span<const uint32_t> tokens, uint32_t& global,
               uint32_t& window);
  // Blocks cached or published so far are no longer found.
  void ForgetAll();

  uint32_t block_tokens;
  uint32_t sliding_window;
  std::array<KvBlockPool, kNumKvGroups> pools;  // by KvGroup
  std::unique_ptr<PrefixTree> tree;
  uint64_t epoch = 0;                                   // counts ForgetAll
  std::array<uint64_t, kNumKvGroups> num_evicted = {};  // cached blocks, by group
};

}  // namespace tandem
