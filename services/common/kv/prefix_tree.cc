#include "services/common/kv/prefix_tree.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "services/common/base/check.h"

namespace tandem {

PrefixTree::PrefixTree(const StepLimits& limits)
    : block_tokens_(limits.block_tokens),
      nodes_(limits.num_blocks[kGlobalGroup]),
      node_of_window_(limits.num_blocks[kWindowGroup], kNoBlock),
      found_(0, Hash{this}, Equal{this}) {}

// absl's hash is salted: who chooses tokens cannot choose collisions.
size_t PrefixTree::Hash::operator()(const Key& key) const {
  return absl::HashOf(key.parent, absl::MakeConstSpan(key.tokens.data(), key.tokens.size()));
}

bool PrefixTree::Equal::operator()(uint32_t node, const Key& key) const {
  const Key other = tree->KeyOf(node);
  return other.parent == key.parent && std::ranges::equal(other.tokens, key.tokens);
}

PrefixTree::Key PrefixTree::KeyOf(uint32_t node) const {
  return {nodes_[node].parent, {tokens_.data() + size_t{node} * block_tokens_, block_tokens_}};
}

uint32_t PrefixTree::Find(uint64_t parent, std::span<const uint32_t> tokens) const {
  const auto found = found_.find(Key{parent, tokens});
  return found == found_.end() ? kNoBlock : *found;
}

void PrefixTree::Add(uint32_t node, uint64_t parent, std::span<const uint32_t> tokens) {
  TANDEM_CHECK(node < nodes_.size() && !contains(node));
  TANDEM_CHECK(tokens.size() == block_tokens_);
  const size_t end = (size_t{node} + 1) * block_tokens_;
  if (tokens_.size() < end) tokens_.resize(end);
  std::ranges::copy(tokens, tokens_.begin() + (end - block_tokens_));
  nodes_[node] = {.parent = parent};
  if (parent < nodes_.size()) ++nodes_[parent].num_children;
  ++version_;
  const bool added = found_.insert(node).second;
  TANDEM_CHECK(added);
}

void PrefixTree::Remove(uint32_t node) {
  TANDEM_CHECK(contains(node) && nodes_[node].num_children == 0);
  found_.erase(node);
  const uint64_t parent = nodes_[node].parent;
  if (parent < nodes_.size()) --nodes_[parent].num_children;
  nodes_[node] = {};
  ++version_;
}

void PrefixTree::Clear() {
  found_.clear();
  std::ranges::fill(nodes_, Node{});
  ++version_;
}

void PrefixTree::SetWindowBlock(uint32_t node, uint32_t block) {
  nodes_[node].window_block = block;
  node_of_window_[block] = node;
  ++version_;
}

void PrefixTree::DropWindowBlock(uint32_t node) {
  nodes_[node].window_block = kNoBlock;
  ++version_;
}

}  // namespace tandem
