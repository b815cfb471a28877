#include "services/common/kv/sequence_blocks.h"

#include <algorithm>

#include "services/common/base/check.h"

namespace tandem {

void SequenceBlocks::Share(const CachedPrefix& prefix) {
  TANDEM_CHECK(tables_[kGlobalGroup].empty());
  epoch_ = pools_->epoch;
  num_published_ = static_cast<uint32_t>(prefix.nodes.size());
  num_released_ = num_unseen_ = prefix.first_window;
  tables_[kGlobalGroup] = prefix.nodes;
  tables_[kWindowGroup].assign(num_published_, kNoBlock);
  // Another prompt went, or goes, on from here.
  const bool forks =
      num_published_ > 0 && (pools_->tree->num_children(prefix.nodes.back()) > 0 ||
                             pools_->pools[kGlobalGroup].num_holders(prefix.nodes.back()) > 0);
  for (uint32_t i = 0; i < num_published_; ++i) {
    pools_->pools[kGlobalGroup].Share(prefix.nodes[i]);
    if (i < prefix.first_window) continue;
    const uint32_t window = pools_->tree->window_block(prefix.nodes[i]);
    pools_->pools[kWindowGroup].Share(window);
    tables_[kWindowGroup][i] = window;
    if (forks) pools_->pools[kWindowGroup].MarkFork(window);
  }
}

void SequenceBlocks::ReleaseBefore(uint32_t first_position, uint32_t picture_first) {
  num_unseen_ = std::min(
      {FirstWindowBlock(first_position, pools_->sliding_window, pools_->block_tokens),
       picture_first / pools_->block_tokens, static_cast<uint32_t>(tables_[kWindowGroup].size())});
  ReleaseTo(publishing() ? std::min(num_unseen_, num_published_) : num_unseen_);
}

bool SequenceBlocks::ReleaseUnpublished() {
  if (num_released_ >= num_unseen_) return false;
  ReleaseTo(num_unseen_);
  return true;
}

void SequenceBlocks::ReleaseTo(uint32_t end) {
  std::vector<uint32_t>& table = tables_[kWindowGroup];
  for (; num_released_ < end; ++num_released_) {
    pools_->pools[kWindowGroup].Free(table[num_released_], /*passed=*/true);
    table[num_released_] = kNoBlock;
  }
}

uint64_t SequenceBlocks::NumCoverable() const {
  const uint32_t available = std::min(pools_->pools[kGlobalGroup].num_available(),
                                      pools_->pools[kWindowGroup].num_available());
  return (uint64_t{tables_[kGlobalGroup].size()} + available) * pools_->block_tokens;
}

bool SequenceBlocks::Extend(uint32_t num_positions) {
  if (num_positions > NumCoverable()) return false;
  if (tables_[kGlobalGroup].empty()) epoch_ = pools_->epoch;
  const uint32_t num_entries = pools_->BlocksFor(num_positions);
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    while (tables_[group].size() < num_entries) {
      tables_[group].push_back(pools_->Allocate(group));
    }
  }
  return true;
}

bool SequenceBlocks::ExtendCopied(uint32_t num_entries, uint32_t first_window) {
  std::vector<uint32_t>& global = tables_[kGlobalGroup];
  std::vector<uint32_t>& window = tables_[kWindowGroup];
  const auto held = static_cast<uint32_t>(global.size());
  const uint32_t window_begin = std::min(std::max(held, first_window), num_entries);
  if (num_entries - held > pools_->pools[kGlobalGroup].num_available() ||
      num_entries - window_begin > pools_->pools[kWindowGroup].num_available()) {
    return false;
  }
  if (global.empty()) epoch_ = pools_->epoch;
  num_unseen_ = std::max(num_unseen_, std::min(first_window, held));
  ReleaseTo(num_unseen_);
  while (global.size() < num_entries) {
    if (global.size() < first_window) {
      window.push_back(kNoBlock);
      num_released_ = num_unseen_ = static_cast<uint32_t>(window.size());
    } else {
      window.push_back(pools_->Allocate(kWindowGroup));
    }
    global.push_back(pools_->Allocate(kGlobalGroup));
  }
  return true;
}

void SequenceBlocks::Publish(std::span<const uint32_t> tokens) {
  if (!publishing()) return;
  const uint32_t block_tokens = pools_->block_tokens;
  std::vector<uint32_t>& global = tables_[kGlobalGroup];
  for (; (uint64_t{num_published_} + 1) * block_tokens <= tokens.size(); ++num_published_) {
    const uint32_t i = num_published_;
    pools_->Publish(i == 0 ? PrefixTree::Root(scope_) : global[i - 1],
                    tokens.subspan(size_t{i} * block_tokens, block_tokens), global[i],
                    tables_[kWindowGroup][i]);
    if (i > 0 && pools_->tree->num_children(global[i - 1]) > 1) MarkForkBefore(i);
  }
}

void SequenceBlocks::MarkForkBefore(uint32_t end) {
  const std::vector<uint32_t>& table = tables_[kWindowGroup];
  const uint32_t first =
      FirstWindowBlock(end * pools_->block_tokens, pools_->sliding_window, pools_->block_tokens);
  for (uint32_t i = std::max(first, num_released_); i < end; ++i) {
    pools_->pools[kWindowGroup].MarkFork(table[i]);
  }
}

void SequenceBlocks::FreeAll() {
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    std::vector<uint32_t>& table = tables_[group];
    for (; !table.empty(); table.pop_back()) {
      if (table.back() != kNoBlock) pools_->pools[group].Free(table.back());
    }
  }
  num_released_ = num_unseen_ = num_published_ = 0;
}

}  // namespace tandem
