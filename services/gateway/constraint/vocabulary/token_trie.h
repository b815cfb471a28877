// A vocabulary as a trie of its tokens' bytes, which masks are made by walking.
//
// The children of a node lie side by side, sorted by byte; blocks of children are in the order of a
// depth-first walk, so that a walk reads memory forwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/mutex.h"
#include "services/gateway/constraint/regex/code_point_set.h"
#include "services/gateway/constraint/regex/regex_arena.h"
#include "services/gateway/constraint/vocabulary/class_tokens.h"

namespace tandem::gateway::constraint {

inline constexpr uint32_t kNoToken = UINT32_MAX;
inline constexpr uint32_t kNoSubtree = UINT32_MAX;

// Code points that begin in a part of a token, where it is UTF-8.
uint16_t CountCodePoints(std::string_view bytes);

// Small: walks are bound by memory.
struct TrieNode {
  uint32_t first_child = 0;
  uint32_t token = kNoToken;  // a token that ends here
  uint32_t subtree = kNoSubtree;
  uint16_t num_children : 9 = 0;
  uint16_t more_tokens : 1 = 0;  // others have the same bytes
  uint16_t height : 6 = 0;       // Subtree::height, or kHighest where it is more
  uint8_t byte = 0;
  uint8_t digits_below = 0;  // binary digits of the number of nodes below
  static constexpr uint16_t kHighest = 63;
};

// The tokens below a node, where there are many: taken or left as one where all that counts is
// which bytes they have.
struct Subtree {
  ByteSet bytes;  // that occur from the node on
  uint32_t first_token = 0;
  uint32_t num_tokens = 0;
  uint32_t num_nodes = 0;
  uint16_t height = 0;      // the most code points of one
  bool code_points = true;  // UTF-8, the last code point perhaps broken off

  bool is_ascii() const { return (bytes.words[2] | bytes.words[3]) == 0; }
  // Of UTF-8: those that are not within a code point.
  ByteSet first_bytes() const { return {{bytes.words[0], bytes.words[1], 0, bytes.words[3]}}; }
};

// Immutable but for a cache; thread-safe.
class TokenTrie {
 public:
  // token_bytes [vocab_size]: the bytes each token stands for in text; tokens with none (control
  // tokens) are never in a mask.  end_tokens: ids in a mask where the text may end.
  // INVALID_ARGUMENT: an end token outside the vocabulary, a token of more than 1,024 bytes.
  // max_class_bytes: of the tables of all classes that are in use.
  static absl::StatusOr<std::shared_ptr<const TokenTrie>> Create(
      std::vector<std::string> token_bytes, std::vector<uint32_t> end_tokens,
      size_t max_class_bytes = size_t{256} << 20);

  const TrieNode& node(uint32_t id) const { return nodes_[id]; }  // 0 is the root
  size_t num_nodes() const { return nodes_.size(); }
  std::string_view bytes(uint32_t token) const {
    return std::string_view(pool_).substr(offsets_[token], offsets_[token + 1] - offsets_[token]);
  }
  uint32_t vocab_size() const { return static_cast<uint32_t>(offsets_.size() - 1); }
  // Words of a mask: a bit a token, bit i % 32 of word i / 32.
  size_t mask_words() const { return (vocab_size() + 31) / 32; }
  size_t max_token_bytes() const { return max_token_bytes_; }
  const std::vector<uint32_t>& end_tokens() const { return end_tokens_; }
  bool IsEndToken(uint32_t token) const;
  // Calls `visit(token)` for every token that ends at `node`.
  template <typename Visit>
  void ForEachToken(const TrieNode& node, Visit visit) const {
    if (node.token == kNoToken) return;
    visit(node.token);
    if (!node.more_tokens) return;
    for (uint32_t t = next_same_[node.token]; t != kNoToken; t = next_same_[t]) visit(t);
  }
  // Null where few nodes are below.
  const Subtree* subtree(const TrieNode& node) const {
    return node.subtree == kNoSubtree ? nullptr : &subtrees_[node.subtree];
  }
  std::span<const uint32_t> Tokens(const Subtree& subtree) const {
    return std::span(in_order_).subspan(subtree.first_token, subtree.num_tokens);
  }
  // Code points of each of Tokens(subtree), counted from the token's first byte.
  std::span<const uint16_t> Lengths(const Subtree& subtree) const {
    return std::span(lengths_).subspan(subtree.first_token, subtree.num_tokens);
  }
  // How many nodes have the byte.
  uint32_t byte_count(uint8_t byte) const { return byte_counts_[byte]; }
  // Every code point.
  const ClassTokens& utf8() const { return utf8_; }
  // A token that passes or ends at `node`.
  uint32_t TokenBelow(uint32_t node) const;

  // The tokens of code points of `code_points` alone, made once and kept while there is room or
  // somebody uses them.  Null: those in use take all the memory that there is for them.
  std::shared_ptr<const ClassTokens> TokensOfClass(const CodePointSet& code_points) const;

  size_t memory_bytes() const;

 private:
  TokenTrie() : utf8_(CodePointSet::All()) {}
  void Build(uint32_t node, std::span<const uint32_t> tokens, size_t depth);
  Subtree DescribeSubtrees(uint32_t node, uint16_t row);

  std::string pool_;
  std::vector<uint32_t> offsets_;    // [vocab_size + 1]
  std::vector<uint32_t> next_same_;  // [vocab_size]
  std::vector<TrieNode> nodes_;
  std::vector<Subtree> subtrees_;
  std::vector<uint32_t> in_order_;  // tokens, as a depth-first walk meets them
  std::vector<uint16_t> lengths_;   // code points of each of in_order_
  std::array<uint32_t, 256> byte_counts_ = {};
  const ClassTokens utf8_;
  std::vector<uint32_t> end_tokens_;
  size_t max_token_bytes_ = 0;

  std::shared_ptr<const ClassTokens> FindClass(const CodePointSet& code_points) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t class_bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  size_t max_class_bytes_ = 0;
  mutable Mutex mutex_;
  mutable std::vector<std::weak_ptr<const ClassTokens>> classes_ ABSL_GUARDED_BY(mutex_);
  // The last used is at the back.
  mutable std::vector<std::shared_ptr<const ClassTokens>> kept_classes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway::constraint
