// A vocabulary as a trie of its tokens' bytes, which masks are made by walking.
//
// The children of a node lie side by side, sorted by byte; blocks of children are in the order of a
// depth-first walk, so that a walk reads memory forwards.
#pragma once

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

struct TrieNode {
  uint32_t first_child = 0;
  uint32_t token = kNoToken;  // a token that ends here
  uint16_t num_children = 0;
  uint8_t byte = 0;
  bool more_tokens = false;  // others have the same bytes
  uint32_t num_below = 0;    // nodes below it
};

// Immutable but for a cache; thread-safe.
class TokenTrie {
 public:
  // token_bytes [vocab_size]: the bytes each token stands for in text; tokens with none (control
  // tokens) are never in a mask.  end_tokens: ids in a mask where the text may end.
  // INVALID_ARGUMENT: an end token outside the vocabulary, a token of more than 1,024 bytes.
  static absl::StatusOr<std::shared_ptr<const TokenTrie>> Create(
      std::vector<std::string> token_bytes, std::vector<uint32_t> end_tokens);

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
  // A token that passes or ends at `node`.
  uint32_t TokenBelow(uint32_t node) const;

  // The tokens of code points of `code_points` alone, made once and kept while there is room.
  std::shared_ptr<const ClassTokens> TokensOfClass(const CodePointSet& code_points) const;

  size_t memory_bytes() const;

 private:
  TokenTrie() = default;
  void Build(uint32_t node, std::span<const uint32_t> tokens, size_t depth);
  void CountNodesBelow();

  std::string pool_;
  std::vector<uint32_t> offsets_;    // [vocab_size + 1]
  std::vector<uint32_t> next_same_;  // [vocab_size]
  std::vector<TrieNode> nodes_;
  std::vector<uint32_t> end_tokens_;
  size_t max_token_bytes_ = 0;

  mutable Mutex mutex_;
  // The last used is at the back.
  mutable std::vector<std::shared_ptr<const ClassTokens>> classes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway::constraint
