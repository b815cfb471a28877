#include "services/gateway/constraint/vocabulary/token_trie.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem::gateway::constraint {
namespace {

constexpr size_t kMaxTokenBytes = 1024;
constexpr size_t kMaxClassBytes = size_t{64} << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenTrie>> TokenTrie::Create(
    std::vector<std::string> token_bytes, std::vector<uint32_t> end_tokens) {
  std::shared_ptr<TokenTrie> trie(new TokenTrie);
  const auto vocab_size = static_cast<uint32_t>(token_bytes.size());
  for (const uint32_t token : end_tokens) {
    if (token >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrFormat("end token %d: the vocabulary has %d tokens", token, vocab_size));
    }
  }
  std::sort(end_tokens.begin(), end_tokens.end());
  trie->offsets_.push_back(0);
  std::vector<uint32_t> order;
  for (uint32_t token = 0; token < vocab_size; ++token) {
    const std::string& bytes = token_bytes[token];
    if (bytes.size() > kMaxTokenBytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("token %d has %d bytes, above %d", token, bytes.size(), kMaxTokenBytes));
    }
    trie->max_token_bytes_ = std::max(trie->max_token_bytes_, bytes.size());
    trie->pool_ += bytes;
    trie->offsets_.push_back(static_cast<uint32_t>(trie->pool_.size()));
    const bool end = std::binary_search(end_tokens.begin(), end_tokens.end(), token);
    if (!bytes.empty() && !end) order.push_back(token);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return token_bytes[a] < token_bytes[b]; });
  trie->next_same_.assign(vocab_size, kNoToken);
  trie->end_tokens_ = std::move(end_tokens);
  trie->nodes_.emplace_back();
  trie->Build(0, order, 0);
  trie->CountNodesBelow();
  trie->nodes_.shrink_to_fit();
  return trie;
}

// tokens: sorted by bytes, all longer than `depth` and alike up to it.
void TokenTrie::Build(uint32_t node, std::span<const uint32_t> tokens, size_t depth) {
  std::vector<std::span<const uint32_t>> groups;
  for (size_t begin = 0; begin < tokens.size();) {
    const char byte = bytes(tokens[begin])[depth];
    size_t end = begin + 1;
    while (end < tokens.size() && bytes(tokens[end])[depth] == byte) ++end;
    groups.push_back(tokens.subspan(begin, end - begin));
    begin = end;
  }
  const auto first_child = static_cast<uint32_t>(nodes_.size());
  nodes_[node].first_child = first_child;
  nodes_[node].num_children = static_cast<uint16_t>(groups.size());
  nodes_.resize(nodes_.size() + groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    std::span<const uint32_t> group = groups[i];
    TrieNode& child = nodes_[first_child + i];
    child.byte = static_cast<uint8_t>(bytes(group[0])[depth]);
    size_t here = 0;
    while (here < group.size() && bytes(group[here]).size() == depth + 1) ++here;
    if (here > 0) {
      child.token = group[0];
      child.more_tokens = here > 1;
      for (size_t j = 0; j + 1 < here; ++j) next_same_[group[j]] = group[j + 1];
    }
    if (here < group.size()) {
      Build(static_cast<uint32_t>(first_child + i), group.subspan(here), depth + 1);
    }
  }
}

// Children come after their parents.
void TokenTrie::CountNodesBelow() {
  for (size_t i = nodes_.size(); i-- > 0;) {
    TrieNode& node = nodes_[i];
    node.num_below = node.num_children;
    for (uint32_t c = 0; c < node.num_children; ++c) {
      node.num_below += nodes_[node.first_child + c].num_below;
    }
  }
}

bool TokenTrie::IsEndToken(uint32_t token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

uint32_t TokenTrie::TokenBelow(uint32_t node) const {
  while (nodes_[node].token == kNoToken) node = nodes_[node].first_child;
  return nodes_[node].token;
}

std::shared_ptr<const ClassTokens> TokenTrie::TokensOfClass(const CodePointSet& code_points) const {
  const auto find =
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> std::shared_ptr<const ClassTokens> {
    const auto found = std::find_if(classes_.begin(), classes_.end(), [&](const auto& tokens) {
      return tokens->code_points() == code_points;
    });
    if (found == classes_.end()) return nullptr;
    std::rotate(found, found + 1, classes_.end());
    return classes_.back();
  };
  {
    MutexLock lock(mutex_);
    if (auto known = find()) return known;
  }
  auto made = std::make_shared<const ClassTokens>(code_points);
  MutexLock lock(mutex_);
  if (auto known = find()) return known;
  classes_.push_back(made);
  size_t total = 0;
  for (const auto& tokens : classes_) total += tokens->memory_bytes();
  while (total > kMaxClassBytes && classes_.size() > 1) {
    total -= classes_.front()->memory_bytes();
    classes_.erase(classes_.begin());
  }
  return made;
}

size_t TokenTrie::memory_bytes() const {
  size_t bytes = pool_.capacity() + offsets_.capacity() * sizeof(uint32_t) +
                 next_same_.capacity() * sizeof(uint32_t) + nodes_.capacity() * sizeof(TrieNode);
  MutexLock lock(mutex_);
  for (const auto& tokens : classes_) bytes += tokens->memory_bytes();
  return bytes;
}

}  // namespace tandem::gateway::constraint
