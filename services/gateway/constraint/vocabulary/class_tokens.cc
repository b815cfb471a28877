#include "services/gateway/constraint/vocabulary/class_tokens.h"

#include <algorithm>

#include "services/gateway/constraint/regex/expression.h"
#include "services/gateway/constraint/vocabulary/token_trie.h"

namespace tandem::gateway::constraint {

namespace {

// Bytes that begin code points of `code_points` alone.
ByteSet WholeFirstBytes(const CodePointSet& code_points) {
  ByteSet whole;
  const auto add = [&](uint32_t byte, uint32_t first, uint32_t last) {
    const CodePointSet missing = CodePointSet{{first, last}}.Minus(code_points);
    if (missing.Minus(CodePointSet{{0xD800, 0xDFFF}}).empty())
      whole.Add(static_cast<uint8_t>(byte));
  };
  for (uint32_t b = 0; b < 0x80; ++b) add(b, b, b);
  for (uint32_t b = 0xC2; b < 0xE0; ++b) add(b, (b - 0xC0) << 6, ((b - 0xC0) << 6) + 0x3F);
  for (uint32_t b = 0xE0; b < 0xF0; ++b) {
    add(b, std::max(0x800u, (b - 0xE0) << 12), ((b - 0xE0) << 12) + 0xFFF);
  }
  for (uint32_t b = 0xF0; b < 0xF5; ++b) {
    add(b, std::max(0x10000u, (b - 0xF0) << 18),
        std::min(kMaxCodePoint, ((b - 0xF0) << 18) + 0x3FFFF));
  }
  return whole;
}

}  // namespace

// Walks the trie along repeats of the class.
class ClassTokens::Walk {
 public:
  Walk(const ClassTokens& tokens, const TokenTrie& trie, TokensBelow& out)
      : class_(tokens), rows_(tokens.rows_), trie_(trie), out_(out) {}

  void Run(uint32_t node, uint32_t depth) {
    Visit(node, 0, 0, depth, 0, 0);
    // By count, else in the trie's order.
    uint32_t most = 0;
    for (const Counted& counted : counted_) most = std::max(most, counted.count);
    std::vector<uint32_t> ends(most + 1, 0);
    for (const Counted& counted : counted_) ++ends[counted.count];
    for (uint32_t i = 1; i <= most; ++i) ends[i] += ends[i - 1];
    out_.count_offsets_ = ends;
    out_.tokens_.resize(counted_.size());
    for (size_t i = counted_.size(); i-- > 0;) {
      out_.tokens_[--ends[counted_[i].count]] = counted_[i].token;
    }
    const auto byte = [this](const auto& exit) { return trie_.node(exit.node).byte; };
    auto& exits = out_.exits_;
    std::sort(exits.begin(), exits.end(), [&](const auto& a, const auto& b) {
      return byte(a) != byte(b) ? byte(a) < byte(b) : a.node < b.node;
    });
    exits.erase(std::unique(exits.begin(), exits.end(),
                            [](const auto& a, const auto& b) { return a.node == b.node; }),
                exits.end());
    exits.shrink_to_fit();
    for (const auto& exit : exits) ++out_.exit_offsets_[byte(exit) + 1];
    for (int i = 0; i < 256; ++i) out_.exit_offsets_[i + 1] += out_.exit_offsets_[i];
  }

 private:
  struct Counted {
    uint32_t count;
    uint32_t token;
  };

  // `count` whole code points lead to the one that is under way at `node`; `begun` is that one's
  // first node, at `begun_depth` bytes.
  void Visit(uint32_t node_id, uint16_t state, uint32_t count, uint32_t depth, uint32_t begun,
             uint32_t begun_depth) {
    const TrieNode& node = trie_.node(node_id);
    for (uint32_t i = 0; i < node.num_children; ++i) {
      const uint32_t child_id = node.first_child + i;
      const TrieNode& child = trie_.node(child_id);
      if (state == 0) {
        begun = child_id;
        begun_depth = depth + 1;
      }
      const uint16_t next = rows_[state][child.byte];
      if (next == kDead) {
        if (out_.exits_.empty() || out_.exits_.back().node != begun) {
          out_.exits_.push_back({begun, trie_.TokenBelow(begun), begun_depth});
        }
        continue;
      }
      trie_.ForEachToken(child, [&](uint32_t token) { counted_.push_back({count + 1, token}); });
      const Subtree* const subtree = next == 0 ? trie_.subtree(child) : nullptr;
      if (subtree != nullptr && class_.Takes(*subtree)) {
        TakeAll(*subtree, count + 1, depth + 1);
      } else if (child.num_children > 0) {
        Visit(child_id, next, count + (next == 0 ? 1 : 0), depth + 1, begun, begun_depth);
      }
    }
  }

  // All tokens below `node`, to which `count` code points lead.
  void TakeAll(const Subtree& subtree, uint32_t count, uint32_t depth) {
    const auto tokens = trie_.Tokens(subtree);
    const auto lengths = trie_.Lengths(subtree);
    if (tokens.empty()) return;
    const uint32_t before = CountCodePoints(trie_.bytes(tokens[0]).substr(0, depth));
    for (size_t i = 0; i < tokens.size(); ++i) {
      counted_.push_back({count + lengths[i] - before, tokens[i]});
    }
  }

  const ClassTokens& class_;
  const std::vector<Row>& rows_;
  const TokenTrie& trie_;
  TokensBelow& out_;
  std::vector<Counted> counted_;
};

ClassTokens::ClassTokens(const CodePointSet& code_points) : code_points_(code_points) {
  RegexArena arena;
  std::vector<RegexId> states = {arena.Repeat(Utf8Bytes(code_points, arena), 0, kUnlimited)};
  for (size_t state = 0; state < states.size(); ++state) {
    rows_.emplace_back().fill(kDead);
    std::vector<Way>& ways = ways_.emplace_back();
    for (ByteSet left = ByteSet::All(); !left.empty();) {
      ByteSet alike;
      const RegexId next = arena.Derive(states[state], left.First(), &alike);
      left = left & ~alike;
      if (next == kNothing) continue;
      const auto found = std::find(states.begin(), states.end(), next);
      const auto number = static_cast<uint16_t>(found - states.begin());
      if (found == states.end()) states.push_back(next);
      alike.ForEach([&](uint8_t byte) { rows_[state][byte] = number; });
      const auto way = std::ranges::find(ways, number, &Way::next);
      if (way == ways.end()) {
        ways.push_back({number, alike});
      } else {
        way->bytes = way->bytes | alike;
      }
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (rows_[0][byte] != kDead) first_bytes_.Add(static_cast<uint8_t>(byte));
  }
  whole_first_bytes_ = WholeFirstBytes(code_points_);
  is_whole_utf8_ = CodePointSet{{0x80, kMaxCodePoint}}.Minus(code_points_).empty();
}

const TokensBelow& ClassTokens::Below(const TokenTrie& trie, uint32_t node, uint32_t depth) const {
  {
    MutexLock lock(mutex_);
    const auto known = below_.find(node);
    if (known != below_.end()) return *known->second;
  }
  std::unique_ptr<TokensBelow> made(new TokensBelow(trie.mask_words()));
  Walk(*this, trie, *made).Run(node, depth);
  MutexLock lock(mutex_);
  return *below_.try_emplace(node, std::move(made)).first->second;
}

bool ClassTokens::Takes(const Subtree& subtree) const {
  return (subtree.first_bytes() & ~whole_first_bytes_).empty() &&
         (subtree.is_ascii() || subtree.code_points);
}

size_t ClassTokens::memory_bytes() const {
  size_t bytes = sizeof(*this) + rows_.capacity() * sizeof(Row);
  for (const auto& ways : ways_) bytes += sizeof(ways) + ways.capacity() * sizeof(Way);
  MutexLock lock(mutex_);
  for (const auto& [node, below] : below_) bytes += below->memory_bytes();
  return bytes;
}

std::span<const uint32_t> TokensBelow::Tokens(uint32_t count) const {
  return std::span(tokens_).first(count_offsets_[std::min(count, max_count())]);
}

std::shared_ptr<const TokenMask> TokensBelow::Mask(uint32_t count) const {
  count = std::min(count, max_count());
  MutexLock lock(mutex_);
  std::shared_ptr<const TokenMask>& known = masks_[count];
  if (known == nullptr) {
    auto mask = std::make_shared<TokenMask>(mask_words_, 0);
    for (const uint32_t token : Tokens(count)) (*mask)[token / 32] |= 1u << (token % 32);
    known = std::move(mask);
  }
  return known;
}

size_t TokensBelow::memory_bytes() const {
  MutexLock lock(mutex_);
  return sizeof(*this) + (tokens_.capacity() + count_offsets_.capacity()) * sizeof(uint32_t) +
         exits_.capacity() * sizeof(Exit) + masks_.size() * mask_words_ * sizeof(uint32_t);
}

}  // namespace tandem::gateway::constraint
