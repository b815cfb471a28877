#include "services/common/kv/sequence_blocks.h"

#include <algorithm>

namespace tandem {

void SequenceBlocks::ReleaseBefore(uint32_t first_position) {
  std::vector<uint32_t>& table = tables_[kWindowGroup];
  const uint32_t first_needed =
      FirstWindowBlock(first_position, pools_->sliding_window, pools_->block_tokens);
  const uint32_t end = std::min<uint32_t>(first_needed, static_cast<uint32_t>(table.size()));
  for (; num_released_ < end; ++num_released_) {
    pools_->pools[kWindowGroup].Free(table[num_released_]);
    table[num_released_] = kNoBlock;
  }
}

uint64_t SequenceBlocks::NumCoverable() const {
  const uint32_t free_blocks =
      std::min(pools_->pools[kGlobalGroup].num_free(), pools_->pools[kWindowGroup].num_free());
  return (uint64_t{tables_[kGlobalGroup].size()} + free_blocks) * pools_->block_tokens;
}

bool SequenceBlocks::Extend(uint32_t num_positions) {
  if (num_positions > NumCoverable()) return false;
  const uint32_t num_entries = pools_->BlocksFor(num_positions);
  for (int group = 0; group < kNumKvGroups; ++group) {
    while (tables_[group].size() < num_entries) {
      tables_[group].push_back(pools_->pools[group].Allocate());
    }
  }
  return true;
}

void SequenceBlocks::FreeAll() {
  for (int group = 0; group < kNumKvGroups; ++group) {
    for (const uint32_t block : tables_[group]) {
      if (block != kNoBlock) pools_->pools[group].Free(block);
    }
    tables_[group].clear();
  }
  num_released_ = 0;
}

}  // namespace tandem
