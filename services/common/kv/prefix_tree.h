// Which blocks hold which prefixes.
//
// A node is a whole block of positions after a certain prefix.  Its parent is the block before it.
// Its own tokens, all of them, distinguish it from its siblings, so two different prefixes never
// match.  A node always has its block of the global group, whose id is the node's id.  Its block of
// the window group may be gone.
//
//   block_tokens 4, tokens A B C D E F G H     root -- [A B C D] 7, window 2
//                   A B C D E F X Y                      |-- [E F G H] 3, window 5
//                                                        +-- [E F X Y] 9, window gone
//
// Each *scope* has its own root: prefixes of one scope are not found in another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "services/common/step/step_batch.h"

namespace tandem {

// Pure data.  Single-thread.
class PrefixTree {
 public:
  explicit PrefixTree(const StepLimits& limits);
  // The hash table refers to this.
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The parent of a scope's first blocks.  Any other parent is a node.
  static uint64_t Root(uint64_t scope) { return (uint64_t{1} << 32) + scope; }

  // The node after `parent` with exactly these `block_tokens` tokens; kNoBlock if there is none.
  uint32_t Find(uint64_t parent, std::span<const uint32_t> tokens) const;
  // REQUIRES `node` is not a node yet, its parent is a node or a root, and Find returns kNoBlock.
  void Add(uint32_t node, uint64_t parent, std::span<const uint32_t> tokens);
  // REQUIRES `node` has no children (checked).
  void Remove(uint32_t node);
  void Clear();

  // A node's block of the window group; kNoBlock if it is gone.
  uint32_t window_block(uint32_t node) const { return nodes_[node].window_block; }
  void SetWindowBlock(uint32_t node, uint32_t block);
  void DropWindowBlock(uint32_t node);
  // The node with this window block.  REQUIRES there is one.
  uint32_t NodeOfWindowBlock(uint32_t block) const { return node_of_window_[block]; }

  // Nodes after a node.
  uint32_t num_children(uint32_t node) const { return nodes_[node].num_children; }
  bool contains(uint32_t node) const { return nodes_[node].parent != kNoParent; }
  uint32_t size() const { return static_cast<uint32_t>(found_.size()); }
  // Changes with every change of the tree, and never repeats.
  uint64_t version() const { return version_; }

 private:
  static constexpr uint64_t kNoParent = ~uint64_t{0};
  struct Node {
    uint64_t parent = kNoParent;  // kNoParent: this block is no node
    uint32_t num_children = 0;
    uint32_t window_block = kNoBlock;
  };
  struct Key {
    uint64_t parent = 0;
    std::span<const uint32_t> tokens;
  };
  // Nodes are found by their keys.
  struct Hash {
    using is_transparent = void;
    size_t operator()(uint32_t node) const { return (*this)(tree->KeyOf(node)); }
    size_t operator()(const Key& key) const;
    const PrefixTree* tree;
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(uint32_t a, uint32_t b) const { return a == b; }
    bool operator()(uint32_t node, const Key& key) const;
    bool operator()(const Key& key, uint32_t node) const { return (*this)(node, key); }
    const PrefixTree* tree;
  };

  Key KeyOf(uint32_t node) const;

  const uint32_t block_tokens_;
  std::vector<Node> nodes_;               // by block of the global group
  std::vector<uint32_t> tokens_;          // block_tokens each, up to the highest node there was
  std::vector<uint32_t> node_of_window_;  // by block of the window group; means nothing for others
  absl::flat_hash_set<uint32_t, Hash, Equal> found_;
  uint64_t version_ = 0;
};

}  // namespace tandem
