#include "services/gateway/constraint/match/regex_tokens.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <tuple>
#include <utility>

#include "services/gateway/constraint/grammar/part_arena.h"
#include "services/gateway/constraint/match/regex_shape.h"
#include "services/gateway/constraint/regex/expression.h"

namespace tandem::gateway::constraint {
namespace {

// Of the number of nodes below a node, in binary digits: with less it is walked as it is.
constexpr uint32_t kMinRegionDigits = 9;

}  // namespace

RegexId RegexWalker::StepSlowly(RegexId state, uint8_t byte) {
  const RegexNode& node = arena_.node(state);
  const RegexNode& head = node.kind == RegexKind::kConcat ? arena_.node(node.a) : node;
  if (head.kind == RegexKind::kLiteral) {
    // One way on: no table.
    if (static_cast<uint8_t>(arena_.literal(head)[0]) != byte) return kNothing;
    return arena_.Derive(state, byte);
  }
  ByteSet alike;
  const RegexId next = arena_.Derive(state, byte, &alike);
  if (rows_.size() <= state) rows_.resize(arena_.size());
  if (rows_[state] == nullptr) {
    rows_[state] = std::make_unique_for_overwrite<RegexId[]>(256);
    std::fill_n(rows_[state].get(), 256, kUnknown);
    bytes_ += 256 * sizeof(RegexId);
  }
  alike.ForEach([&](uint8_t b) { rows_[state][b] = next; });
  return next;
}

const RegexTokens& RegexWalker::Tokens(RegexId state) {
  std::unique_ptr<RegexTokens>& known = tokens_[state];
  if (known != nullptr) return *known;
  regions_.BeginSearches();
  Walk(state, 0, 0);
  auto made = std::make_unique<RegexTokens>(RegexTokens{inside_.Take(), std::exchange(exits_, {})});
  auto& exits = made->exits;
  const auto key = [](const RegexTokens::Exit& e) { return std::tie(e.tag, e.byte, e.node); };
  std::sort(exits.begin(), exits.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
  exits.erase(std::unique(exits.begin(), exits.end(),
                          [&](const auto& a, const auto& b) { return key(a) == key(b); }),
              exits.end());
  exits.shrink_to_fit();
  bytes_ += made->memory_bytes() + 32;
  for (const auto& mask : made->inside.masks) {
    if (mask.use_count() == 1) bytes_ += mask->size() * sizeof(uint32_t);
  }
  known = std::move(made);
  return *known;
}

// Alternatives with a region each are looked at one by one.  Two that leave a class each by what
// the other one takes have a region together, here or further on.
RegexId RegexWalker::AddRegions(RegexId state, uint32_t node, uint32_t depth) {
  // A search is worth a part of what a walk takes.
  regions_.LimitSearch(trie_.subtree(trie_.node(node))->num_nodes / 8);
  if (arena_.node(state).kind != RegexKind::kOr) {
    return AddRegion(state, node, depth) ? kNothing : state;
  }
  const auto span = arena_.children(arena_.node(state));
  const std::vector<RegexId> children(span.begin(), span.end());
  // Patterns that exclude each other: what one does not take the other one does.
  const auto wide =
      std::ranges::count_if(children, [this](RegexId child) { return arena_.node(child).boolean; });
  if (wide > 1 && regions_.Of(state, false).tokens != nullptr) {
    AddRegion(state, node, depth);
    return kNothing;
  }
  std::vector<RegexId> with, walked, rest;
  for (const RegexId child : children) {
    const RegexRegion& region = regions_.Of(child, false);
    const bool has_table = region.tokens != nullptr && regions_.HasTable(region, node, depth);
    (has_table ? with : region.tokens != nullptr ? walked : rest).push_back(child);
  }
  // A way for each would take longer than one for all.
  if (walked.size() > 1 || !with.empty()) {
    rest.insert(rest.end(), walked.begin(), walked.end());
  } else {
    with = std::move(walked);
  }
  const bool rest_is_wide =
      std::ranges::any_of(rest, [this](RegexId child) { return arena_.node(child).boolean; });
  if (!rest.empty() && (rest_is_wide || with.empty())) {
    return AddRegion(state, node, depth) ? kNothing : state;
  }
  for (const RegexId child : with) AddRegion(child, node, depth);
  return arena_.Or(std::move(rest));
}

bool RegexWalker::AddRegion(RegexId state, uint32_t node, uint32_t depth) {
  RegexRegion region = regions_.Of(state, false);
  if (region.tokens == nullptr) region = regions_.Of(state, true);
  if (region.tokens == nullptr) return false;
  if (regions_.HasTable(region, node, depth)) {
    AddTable(state, region, node, depth);
  } else {
    WalkRegion(state, region, 0, region.max, node, depth);
  }
  return true;
}

void RegexWalker::AddTable(RegexId state, const RegexRegion& region, uint32_t node,
                           uint32_t depth) {
  const TokensBelow& below = region.tokens->Below(trie_, node, depth);
  const auto tokens = below.Tokens(region.max);
  if (tokens.size() > trie_.mask_words()) {
    inside_.Add(below.Mask(region.max));
  } else {
    inside_.Add(tokens);
  }
  const auto state_after = [&](std::string_view bytes) {
    RegexId at = state;
    for (size_t i = 0; i < bytes.size() && at != kNothing; ++i) {
      at = Step(at, static_cast<uint8_t>(bytes[i]));
    }
    visits_ += bytes.size();
    return at;
  };
  for (const uint32_t token : below.Tokens(region.longest).subspan(tokens.size())) {
    if (state_after(trie_.bytes(token).substr(depth)) != kNothing) {
      inside_.Add(token);
    }
  }
  region.exits.ForEach([&](uint8_t byte) {
    for (const TokensBelow::Exit& exit : below.exits(byte)) {
      const RegexId at = state_after(trie_.bytes(exit.token).substr(depth, exit.depth - depth));
      if (at != kNothing) Arrive(at, exit.node, exit.depth);
    }
  });
}

void RegexWalker::WalkRegion(RegexId state, const RegexRegion& region, uint16_t row, uint32_t max,
                             uint32_t node_id, uint32_t depth) {
  const TrieNode node = trie_.node(node_id);
  if (exceeded()) return;
  visits_ += node.num_children;
  for (uint32_t i = 0; i < node.num_children; ++i) {
    const uint32_t child_id = node.first_child + i;
    const TrieNode& child = trie_.node(child_id);
    const bool ends = (row == 0 && max == 0) || region.avoided.Contains(child.byte);
    const uint16_t next_row = ends ? ClassTokens::kDead : region.tokens->Next(row, child.byte);
    const bool inside = next_row != ClassTokens::kDead;
    if (inside && child.num_children == 0) {
      AddTokens(child);
      continue;
    }
    const uint32_t left = row == 0 && max != kUnlimited ? max - 1 : max;
    const Subtree* const subtree = next_row == 0 ? trie_.subtree(child) : nullptr;
    if (subtree != nullptr && region.Takes(*subtree)) {
      if (subtree->height <= left) {
        AddTokens(child);
        AddTokens(*subtree);
        continue;
      }
      if ((subtree->bytes & region.follows).empty()) {
        AddTokens(child);
        AddTokens(*subtree, depth + 1, left);
        continue;
      }
    }
    const RegexId next = Step(state, child.byte);
    if (next == kNothing) continue;
    if (inside) {
      AddTokens(child);
      WalkRegion(next, region, next_row, left, child_id, depth + 1);
    } else {
      Arrive(next, child_id, depth + 1);
    }
  }
}

void RegexWalker::AddTokens(const TrieNode& node) {
  trie_.ForEachToken(node, [&](uint32_t token) { inside_.Add(token); });
}

void RegexWalker::AddTokens(const Subtree& subtree) {
  inside_.Add(trie_.Tokens(subtree));
  ++visits_;
}

void RegexWalker::AddTokens(const Subtree& subtree, uint32_t depth, uint32_t most) {
  const auto tokens = trie_.Tokens(subtree);
  const auto lengths = trie_.Lengths(subtree);
  if (tokens.empty()) return;
  most += CountCodePoints(trie_.bytes(tokens[0]).substr(0, depth));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (lengths[i] <= most) inside_.Add(tokens[i]);
  }
  visits_ += tokens.size() / 8;  // they lie side by side
}

bool RegexWalker::Loops(RegexId state, const Subtree& subtree) {
  if (!subtree.is_ascii() && !subtree.code_points) return false;
  if (EndsTerminal(arena_, state)) return false;
  const ByteSet bytes = subtree.first_bytes();
  for (const unsigned i : {0u, 1u, 3u}) {
    for (uint64_t word = bytes.words[i]; word != 0; word &= word - 1) {
      const unsigned byte = i * 64 + static_cast<unsigned>(std::countr_zero(word));
      if (!LoopsAt(state, static_cast<uint8_t>(byte))) return false;
    }
  }
  return true;
}

bool RegexWalker::LoopsAt(RegexId state, uint8_t first) {
  if (first < 0x80) return Step(state, first) == state;
  const auto known = loops_.find(uint64_t{state} << 8 | first);
  if (known != loops_.end()) return known->second;
  const ClassTokens& utf8 = trie_.utf8();
  std::vector<std::pair<RegexId, uint16_t>> places = {{Step(state, first), utf8.Next(0, first)}};
  bool loops = true;
  for (size_t i = 0; i < places.size() && loops; ++i) {
    const auto [at, row] = places[i];
    loops = at != kNothing && !EndsTerminal(arena_, at);
    for (unsigned byte = 0x80; byte < 0xC0 && loops; ++byte) {
      const uint16_t next_row = utf8.Next(row, static_cast<uint8_t>(byte));
      if (next_row == ClassTokens::kDead) continue;
      const std::pair next{Step(at, static_cast<uint8_t>(byte)), next_row};
      if (next_row == 0) {
        loops = next.first == state;
      } else if (std::find(places.begin(), places.end(), next) == places.end()) {
        places.push_back(next);
      }
    }
  }
  bytes_ += 32;
  loops_[uint64_t{state} << 8 | first] = loops;
  return loops;
}

void RegexWalker::Walk(RegexId state, uint32_t node_id, uint32_t depth) {
  const TrieNode node = trie_.node(node_id);
  if (node.digits_below >= kMinRegionDigits) state = AddRegions(state, node_id, depth);
  if (state == kNothing || exceeded()) return;
  visits_ += node.num_children;
  for (uint32_t i = 0; i < node.num_children; ++i) {
    const TrieNode& child = trie_.node(node.first_child + i);
    const RegexId next = Step(state, child.byte);
    if (next == kNothing) continue;
    if (child.num_children == 0) {
      AddTokens(child);
    } else {
      Arrive(next, node.first_child + i, depth + 1);
    }
  }
}

// `state` is reached at `node`.
void RegexWalker::Arrive(RegexId state, uint32_t node_id, uint32_t depth) {
  const TrieNode& node = trie_.node(node_id);
  AddTokens(node);
  if (node.num_children == 0) return;
  if (arena_.node(state).accepts) {
    std::vector<uint32_t> tags;
    arena_.AcceptedTags(state, tags);
    for (const uint32_t tag : tags) {
      for (uint32_t i = 0; i < node.num_children && tag != kFinalTag; ++i) {
        exits_.push_back({tag, trie_.node(node.first_child + i).byte, node.first_child + i});
      }
    }
    if (arena_.OnlyTags(state)) return;
  }
  const Subtree* const subtree = trie_.subtree(node);
  const uint8_t first = trie_.node(node.first_child).byte;
  const bool may_loop = subtree != nullptr && (first >= 0x80 || Step(state, first) == state);
  if (may_loop && Loops(state, *subtree)) return AddTokens(*subtree);
  Walk(state, node_id, depth);
}

bool RegexWalker::TakeExceeded() {
  const bool was = exceeded();
  work_limit_ = UINT64_MAX;
  if (was) DropCaches();
  return was;
}

void RegexWalker::DropCaches() {
  rows_.clear();
  tokens_.clear();
  regions_.Clear();
  loops_.clear();
  bytes_ = 0;
}

}  // namespace tandem::gateway::constraint
