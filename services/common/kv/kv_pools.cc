#include "services/common/kv/kv_pools.h"

#include <algorithm>

#include "services/common/base/check.h"

namespace tandem {

void KvPools::Reset(const StepLimits& limits) {
  block_tokens = limits.block_tokens;
  sliding_window = limits.sliding_window;
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    TANDEM_CHECK(pools[group].num_used() == 0);
    pools[group] = KvBlockPool(limits.num_blocks[group]);
  }
  tree = std::make_unique<PrefixTree>(limits);
}

uint32_t KvPools::Allocate(KvGroup group) {
  const uint32_t block = pools[group].Allocate();
  if (block != kNoBlock) return block;
  const uint32_t victim = pools[group].NextVictim();
  if (victim == kNoBlock) return kNoBlock;
  if (group == kGlobalGroup) {
    // The holder of a node holds its parents and gives them back after it.  So the victim has no
    // children, and its window block has no holder.
    const uint32_t window = tree->window_block(victim);
    if (window != kNoBlock) {
      pools[kWindowGroup].Forget(window);
      ++num_evicted[kWindowGroup];
    }
    tree->Remove(victim);
  } else {
    tree->DropWindowBlock(tree->NodeOfWindowBlock(victim));
  }
  pools[group].Forget(victim);
  ++num_evicted[group];
  return pools[group].Allocate();
}

void KvPools::Find(uint64_t scope, std::span<const uint32_t> tokens, uint64_t max_positions,
                   CachedPrefix& found) const {
  found.nodes.clear();
  found.first_window = 0;
  uint32_t usable = 0;
  uint32_t first_seen = 0;  // nodes [first_seen, i] have their window blocks
  uint64_t parent = PrefixTree::Root(scope);
  while ((found.nodes.size() + uint64_t{1}) * block_tokens <= max_positions) {
    const auto i = static_cast<uint32_t>(found.nodes.size());
    const uint32_t node =
        tree->Find(parent, tokens.subspan(size_t{i} * block_tokens, block_tokens));
    if (node == kNoBlock) break;
    found.nodes.push_back(node);
    parent = node;
    if (tree->window_block(node) == kNoBlock) first_seen = i + 1;
    const uint32_t first_needed =
        FirstWindowBlock((i + 1) * block_tokens, sliding_window, block_tokens);
    if (first_needed < first_seen) continue;
    usable = i + 1;
    found.first_window = first_needed;
  }
  found.nodes.resize(usable);
}

void KvPools::FindBlocks(uint64_t scope, std::span<const uint32_t> tokens, uint32_t first_window,
                         CachedPrefix& found) const {
  found.nodes.clear();
  uint64_t parent = PrefixTree::Root(scope);
  for (; tokens.size() >= block_tokens; tokens = tokens.subspan(block_tokens)) {
    const uint32_t node = tree->Find(parent, tokens.first(block_tokens));
    const bool needs_window = found.nodes.size() >= first_window;
    if (node == kNoBlock || (needs_window && tree->window_block(node) == kNoBlock)) break;
    found.nodes.push_back(node);
    parent = node;
  }
  found.first_window = std::min(first_window, static_cast<uint32_t>(found.nodes.size()));
}

bool KvPools::FindWindowFrom(uint32_t first_seen, CachedPrefix& found) const {
  const uint32_t first_needed = first_seen / block_tokens;
  for (uint32_t i = first_needed; i < found.first_window; ++i) {
    if (tree->window_block(found.nodes[i]) == kNoBlock) return false;
  }
  found.first_window = std::min(found.first_window, first_needed);
  return true;
}

uint32_t KvPools::NumUnheld(const CachedPrefix& found, KvGroup group) const {
  uint32_t unheld = 0;
  for (size_t i = group == kWindowGroup ? found.first_window : 0; i < found.nodes.size(); ++i) {
    const uint32_t node = found.nodes[i];
    const uint32_t block = group == kWindowGroup ? tree->window_block(node) : node;
    if (pools[group].num_holders(block) == 0) ++unheld;
  }
  return unheld;
}

void KvPools::Publish(uint64_t parent, std::span<const uint32_t> tokens, uint32_t& global,
                      uint32_t& window) {
  const uint32_t node = tree->Find(parent, tokens);
  if (node == kNoBlock) {
    tree->Add(global, parent, tokens);
    pools[kGlobalGroup].Keep(global);
  } else if (node != global) {
    pools[kGlobalGroup].Share(node);
    pools[kGlobalGroup].Free(global);
    global = node;
  }
  if (window == kNoBlock) return;
  const uint32_t there = tree->window_block(global);
  if (there == kNoBlock) {
    tree->SetWindowBlock(global, window);
    pools[kWindowGroup].Keep(window);
  } else if (there != window) {
    pools[kWindowGroup].Share(there);
    pools[kWindowGroup].Free(window);
    window = there;
  }
}

void KvPools::ForgetAll() {
  ++epoch;
  for (uint32_t node = 0; node < pools[kGlobalGroup].num_blocks(); ++node) {
    if (!tree->contains(node)) continue;
    pools[kGlobalGroup].Forget(node);
    if (const uint32_t window = tree->window_block(node); window != kNoBlock) {
      pools[kWindowGroup].Forget(window);
    }
  }
  tree->Clear();
}

}  // namespace tandem
