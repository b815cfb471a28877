#include "services/gateway/constraint/vocabulary/token_trie.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem::gateway::constraint {
namespace {

constexpr size_t kMaxTokenBytes = 1024;
// Tables of classes that are kept though nobody uses them.
constexpr size_t kKeptClassBytes = size_t{64} << 20;
constexpr uint32_t kMinSubtreeNodes = 8;

}  // namespace

uint16_t CountCodePoints(std::string_view bytes) {
  return static_cast<uint16_t>(
      std::ranges::count_if(bytes, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

absl::StatusOr<std::shared_ptr<const TokenTrie>> TokenTrie::Create(
    std::vector<std::string> token_bytes, std::vector<uint32_t> end_tokens,
    size_t max_class_bytes) {
  std::shared_ptr<TokenTrie> trie(new TokenTrie);
  trie->max_class_bytes_ = max_class_bytes;
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
  trie->in_order_.reserve(order.size());
  trie->lengths_.reserve(order.size());
  trie->DescribeSubtrees(0, 0);
  trie->subtrees_.shrink_to_fit();
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
  nodes_[node].num_children = static_cast<uint16_t>(groups.size()) & 0x1FF;
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

// `row` of utf8_ is where `node` stands.
Subtree TokenTrie::DescribeSubtrees(uint32_t node_id, uint16_t row) {
  Subtree all;
  ForEachToken(nodes_[node_id], [this](uint32_t token) {
    in_order_.push_back(token);
    lengths_.push_back(CountCodePoints(bytes(token)));
  });
  all.first_token = static_cast<uint32_t>(in_order_.size());
  // What begins within a code point is not looked at.
  all.code_points = row != ClassTokens::kDead;
  for (uint32_t i = 0; i < nodes_[node_id].num_children; ++i) {
    const uint32_t child_id = nodes_[node_id].first_child + i;
    const uint8_t byte = nodes_[child_id].byte;
    const Subtree child =
        DescribeSubtrees(child_id, row == ClassTokens::kDead ? row : utf8_.Next(row, byte));
    all.num_nodes += child.num_nodes + 1;
    all.bytes = all.bytes | child.bytes;
    all.bytes.Add(byte);
    ++byte_counts_[byte];
    const bool begins = (byte & 0xC0) != 0x80;  // a code point
    all.height = std::max(all.height, static_cast<uint16_t>(child.height + (begins ? 1 : 0)));
    all.code_points = all.code_points && child.code_points;
  }
  all.num_tokens = static_cast<uint32_t>(in_order_.size()) - all.first_token;
  TrieNode& node = nodes_[node_id];
  node.height = std::min(all.height, TrieNode::kHighest) & TrieNode::kHighest;
  node.digits_below = static_cast<uint8_t>(std::bit_width(all.num_nodes));
  if (all.num_nodes >= kMinSubtreeNodes) {
    node.subtree = static_cast<uint32_t>(subtrees_.size());
    subtrees_.push_back(all);
    subtrees_.back().code_points = all.code_points && row == 0;
  }
  return all;
}

bool TokenTrie::IsEndToken(uint32_t token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

uint32_t TokenTrie::TokenBelow(uint32_t node) const {
  while (nodes_[node].token == kNoToken) node = nodes_[node].first_child;
  return nodes_[node].token;
}

std::shared_ptr<const ClassTokens> TokenTrie::FindClass(const CodePointSet& code_points) const {
  for (const auto& each : classes_) {
    auto tokens = each.lock();
    if (tokens != nullptr && tokens->code_points() == code_points) return tokens;
  }
  return nullptr;
}

size_t TokenTrie::class_bytes() const {
  size_t bytes = 0;
  for (const auto& each : classes_) {
    if (const auto tokens = each.lock()) bytes += tokens->memory_bytes();
  }
  return bytes;
}

std::shared_ptr<const ClassTokens> TokenTrie::TokensOfClass(const CodePointSet& code_points) const {
  std::shared_ptr<const ClassTokens> tokens;
  {
    MutexLock lock(mutex_);
    tokens = FindClass(code_points);
    if (tokens == nullptr) {
      std::erase_if(classes_, [](const auto& each) { return each.expired(); });
      if (class_bytes() > max_class_bytes_) return nullptr;
    }
  }
  if (tokens == nullptr) tokens = std::make_shared<const ClassTokens>(code_points);
  MutexLock lock(mutex_);
  if (auto known = FindClass(code_points)) {
    tokens = std::move(known);
  } else {
    classes_.push_back(tokens);
  }
  std::erase(kept_classes_, tokens);
  kept_classes_.push_back(tokens);
  size_t total = 0;
  for (const auto& each : kept_classes_) total += each->memory_bytes();
  while (total > std::min(kKeptClassBytes, max_class_bytes_) && kept_classes_.size() > 1) {
    total -= kept_classes_.front()->memory_bytes();
    kept_classes_.erase(kept_classes_.begin());
  }
  return tokens;
}

size_t TokenTrie::memory_bytes() const {
  size_t bytes = pool_.capacity() + offsets_.capacity() * sizeof(uint32_t) +
                 next_same_.capacity() * sizeof(uint32_t) + nodes_.capacity() * sizeof(TrieNode) +
                 subtrees_.capacity() * sizeof(Subtree) + in_order_.capacity() * sizeof(uint32_t) +
                 lengths_.capacity() * sizeof(uint16_t) + utf8_.memory_bytes();
  MutexLock lock(mutex_);
  return bytes + class_bytes();
}

}  // namespace tandem::gateway::constraint
