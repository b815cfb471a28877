#include "services/gateway/constraint/match/regex_regions.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "services/gateway/constraint/match/regex_shape.h"
#include "services/gateway/constraint/regex/expression.h"

namespace tandem::gateway::constraint {
namespace {

// Below it a walk costs less than the class's tables.
constexpr uint32_t kMinClassSize = 20;
// Of the number of nodes below a node, in binary digits: with less it is walked without the class's
// tables.
constexpr uint32_t kMinTableDigits = 15;
// Each takes some milliseconds and a megabyte with a vocabulary of 262,144 tokens.
constexpr size_t kMaxClasses = 32;
// Bound the search for a class whose every text fits.
constexpr size_t kMaxLeadingClasses = 3;
constexpr size_t kMaxClosedPlaces = 2000;
constexpr uint64_t kMaxSearch = 8'000;        // at a node of the trie
constexpr uint64_t kMaxSearchInAll = 16'000;  // for one state's tokens
constexpr uint64_t kClassSearch = 1'000;      // for one class of several, at least
constexpr uint64_t kPlaceWork = 4;
constexpr size_t kMaxAvoided = 12;
constexpr size_t kMaxJoint = 8;
// Tokens that are looked at one by one where a region does not say whether they fit.
constexpr size_t kMaxSteppedTokens = 16'384;
// A class whose texts fit up to some length is worth it from this length on, and up to so many tokens.
constexpr uint32_t kMinSure = 8;
constexpr size_t kMaxUnsureTokens = 4'096;

// The part of a class whose code points are written as they are.
CodePointSet PlainPart(const RegexClass& regex_class) {
  static const auto* const escaped = new CodePointSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  if (regex_class.spelling == Spelling::kPlain) return regex_class.code_points;
  return regex_class.code_points.Minus(*escaped);
}

// The bytes with which a text that is not of the class may go on after a code point of it.
ByteSet OutsideOf(const ClassTokens& tokens) {
  const ByteSet inside = tokens.is_whole_utf8() ? ByteSet::All() : ByteSet::Range(0, 0x7F);
  return ~(tokens.first_bytes() & inside);
}

// Of `node` and of the large nodes below it.
void PrepareTables(const ClassTokens& tokens, const TokenTrie& trie, uint32_t node,
                   uint32_t depth) {
  const TokensBelow& below = tokens.Below(trie, node, depth);
  if (below.Tokens(kUnlimited).size() > trie.mask_words()) below.Mask(kUnlimited);
  for (uint32_t i = 0; i < trie.node(node).num_children; ++i) {
    const uint32_t child = trie.node(node).first_child + i;
    if (trie.node(child).digits_below >= kMinTableDigits) {
      PrepareTables(tokens, trie, child, depth + 1);
    }
  }
}

}  // namespace

ClassTables PrepareClasses(const RegexArena& arena, const TokenTrie& trie) {
  ClassTables tables;
  for (uint32_t number = 0; number < arena.num_classes() && tables.size() < kMaxClasses; ++number) {
    const RegexClass& regex_class = arena.regex_class(number);
    if (regex_class.code_points.size() < kMinClassSize) continue;
    auto tokens = trie.TokensOfClass(PlainPart(regex_class));
    if (tokens == nullptr) break;
    PrepareTables(*tokens, trie, 0, 0);
    tables.push_back(std::move(tokens));
  }
  return tables;
}

void RegexRegions::LimitSearch(uint64_t most) {
  search_end_ = std::min(search_work_ + std::min(most, kMaxSearch), kMaxSearchInAll);
}

void RegexRegions::Clear() {
  found_.clear();
  avoiding_.clear();
  closed_.clear();
  transitions_.clear();
  bytes_ = 0;
}

const RegexRegion& RegexRegions::Of(RegexId state, bool avoiding) {
  auto& regions = avoiding ? avoiding_ : found_;
  const auto [found, added] = regions.try_emplace(state);
  if (added) bytes_ += sizeof(RegexRegion) + 16;
  const uint64_t most = search_end_ - std::min(search_work_, search_end_);
  const RegexRegion& region = found->second;
  if (!added && (region.tokens != nullptr || region.searched >= most)) return region;
  RegexRegion made = avoiding ? FindAvoidingRegion(state) : FindRegion(state);
  made.searched = most;
  return regions[state] = made;
}

// The state is a repeat of a class and something after it, for which
//   - every token of up to `max` of the class's code points is allowed, and
//   - every other allowed token leaves the class by a byte of what comes after.
RegexRegion RegexRegions::FindRegion(RegexId state) {
  if (arena_.node(state).kind == RegexKind::kOr) {
    const RegexRegion joint = FindJointRegion(state);
    if (joint.tokens != nullptr) return joint;
  }
  const RegexRegion region = FindRepeatRegion(state);
  const bool walked = region.only_if_beyond_tokens && region.longest < kMinSure;
  if (region.tokens != nullptr && !walked && !BeginsWithLargerClass(state, *region.tokens)) {
    return region;
  }
  RegexRegion larger = FindBoundedRegion(state);
  if (larger.tokens == nullptr) larger = FindClosedRegion(state);
  return larger.tokens != nullptr ? larger : region;
}

bool RegexRegions::BeginsWithLargerClass(RegexId state, const ClassTokens& tokens) const {
  std::vector<uint32_t> classes;
  arena_.LeadingClasses(state, kMaxLeadingClasses, classes);
  const uint32_t size = tokens.code_points().size();
  return std::ranges::any_of(classes, [&](uint32_t number) {
    return arena_.regex_class(number).code_points.size() / 2 > size;
  });
}

bool RegexRegions::BeginsWithin(RegexId id, const ClassTokens& tokens) {
  return std::ranges::any_of(TransitionsOf(id), [&](const Transition& transition) {
    return transition.next != kNothing && !(transition.bytes & tokens.first_bytes()).empty();
  });
}

RegexRegion RegexRegions::FindRepeatRegion(RegexId state) {
  RegexRegion region;
  const RegexNode& node = arena_.node(state);
  if (node.kind != RegexKind::kConcat || EndsTerminal(arena_, node.b)) return region;
  const RegexNode& head = arena_.node(node.a);
  std::optional<RepeatedClass> found;
  // Of the repeat and what follows it up to node.b; of it so much that what follows has room.
  uint32_t longest = kUnlimited, sure = kUnlimited, length = kUnlimited;
  bool bounded = false;
  if (head.kind == RegexKind::kAnd) {
    // A repeat but for some short texts: every longer text is allowed, so every beginning of one.
    // Or a pattern that begins with one, and a length.
    uint32_t excluded = 0;
    RegexId pattern = kNothing;
    bool any_pattern = false;
    for (const RegexId child : arena_.children(head)) {
      const RegexNode& part = arena_.node(child);
      if (part.kind == RegexKind::kNot) {
        excluded = std::max(excluded, arena_.MaxLength(part.a));
      } else if (part.kind == RegexKind::kRepeat && arena_.IsAnyCodePoint(part.a) && head.b > 1 &&
                 !bounded) {
        bounded = true;
        longest = length = part.c;
        // The pattern can grow to the shortest length that is asked for; see below.
        if (part.b > part.c) return region;
        any_pattern = part.b > 0;
      } else if (pattern == kNothing) {
        pattern = child;
      } else {
        return region;
      }
    }
    if (pattern == kNothing) {
      // The length is the repeat.
      if (excluded == RegexArena::kNoLength || longest <= excluded) return region;
      for (const RegexId child : arena_.children(head)) {
        if (arena_.node(child).kind != RegexKind::kRepeat) continue;
        found = FindRepeat(arena_, child);
        if (!found) return region;
      }
      if (!found) return region;
      longest = found->max;
    } else {
      found = FindRepeat(arena_, pattern);
      if (!found || arena_.node(found->rest).boolean) return region;
      if (excluded > 0) {
        const bool free = excluded != RegexArena::kNoLength && found->rest == kEmptyText &&
                          found->max > excluded && longest > excluded;
        if (!free) return region;
      }
      // A text of the least length must be there: the repeat fills it.
      if (any_pattern && found->max != kUnlimited) return region;
      if (longest != kUnlimited) {
        // An upper bound: tokens that leave less may fit.
        const uint64_t needed = arena_.MinLength(found->rest);
        if (needed + found->min > longest) return region;
        sure = longest - static_cast<uint32_t>(needed);
      }
      longest = std::min(longest, found->max);
    }
  } else {
    found = FindRepeat(arena_, state);
    if (!found || EndsTerminal(arena_, found->rest)) return region;
    longest = found->max;
  }
  const bool exact = head.kind != RegexKind::kAnd;
  const RegexClass& regex_class = arena_.regex_class(found->regex_class);
  if (regex_class.code_points.size() < kMinClassSize) return region;
  const ClassTokens* tokens = TokensOfClass(found->regex_class);
  if (tokens == nullptr) return region;
  ByteSet after = arena_.Alphabet(found->rest);
  if (head.kind == RegexKind::kAnd) after = after | arena_.Alphabet(node.b);
  const bool overlaps = !(after & tokens->first_bytes()).empty();
  // Where what follows may read the class's code points too, it may take those beyond the limit.
  sure = std::min(sure, longest);
  region.only_if_beyond_tokens = overlaps && (found->max != kUnlimited || sure < longest);
  region.longest = overlaps ? sure : longest;
  if (overlaps && length != kUnlimited && !BeginsWithin(node.b, *tokens)) {
    // But not beyond the length.
    region.only_if_beyond_tokens = false;
    region.longest = length;
  }
  region.exits = after;
  const bool spelled = regex_class.spelling != Spelling::kPlain;
  if (spelled) region.exits.Add('\\');
  region.tokens = tokens;
  region.max = sure;
  if (exact) {
    region.follows = {};
    for (const auto& [bytes, next] : TransitionsOf(found->rest)) {
      if (next != kNothing) region.follows = region.follows | bytes;
    }
    if (spelled) region.follows.Add('\\');
  }
  return region;
}

RegexRegion RegexRegions::FindJointRegion(RegexId state) {
  std::vector<std::vector<RegexId>> all;  // what each alternative asks for
  RegexId tail = kNothing;
  for (const RegexId child : arena_.children(arena_.node(state))) {
    const RegexNode& node = arena_.node(child);
    if (node.kind != RegexKind::kConcat || arena_.node(node.a).kind != RegexKind::kAnd) continue;
    const auto parts = arena_.children(arena_.node(node.a));
    all.emplace_back(parts.begin(), parts.end());
    tail = node.b;
  }
  if (all.size() < 2 || all.size() > kMaxJoint) return {};
  const auto exclude = [this](RegexId a, RegexId b) {
    const RegexNode& x = arena_.node(a);
    return x.kind == RegexKind::kNot && x.a == b;
  };
  bool joined = false;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      std::vector<RegexId> both, a, b;
      std::ranges::set_intersection(all[i], all[j], std::back_inserter(both));
      std::ranges::set_difference(all[i], both, std::back_inserter(a));
      std::ranges::set_difference(all[j], both, std::back_inserter(b));
      if (a.size() != 1 || b.size() != 1) continue;
      if (!exclude(a[0], b[0]) && !exclude(b[0], a[0])) continue;
      all[j] = std::move(both);
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      joined = true;
      i = 0;  // the loop begins again
      break;
    }
  }
  if (!joined) return {};
  for (std::vector<RegexId>& parts : all) {
    RegexRegion region = FindRepeatRegion(arena_.Concat(arena_.And(std::move(parts)), tail));
    if (region.tokens == nullptr || region.max != kUnlimited) continue;
    if (!EndsOutside(arena_, state, *region.tokens)) continue;
    region.exits = OutsideOf(*region.tokens);
    return region;
  }
  return {};
}

// A pattern and a length: as the pattern alone where it is closed, but for long texts.
RegexRegion RegexRegions::FindBoundedRegion(RegexId state) {
  const RegexNode node = arena_.node(state);
  const bool chain = node.kind == RegexKind::kConcat;
  const RegexId head = chain ? node.a : state, tail = chain ? node.b : kEmptyText;
  if (arena_.node(head).kind != RegexKind::kAnd || EndsTerminal(arena_, tail)) return {};
  std::vector<RegexId> others;
  uint32_t shortest = 0, longest = kUnlimited, any = 0;
  bool bounded = false;
  for (const RegexId child : arena_.children(arena_.node(head))) {
    const RegexNode& part = arena_.node(child);
    const bool bounds = part.kind == RegexKind::kRepeat && arena_.IsAnyCodePoint(part.a) &&
                        (part.b > 1 || part.c != kUnlimited);
    if (bounds) {
      bounded = true;
      shortest = std::max(shortest, part.b);
      longest = std::min(longest, part.c);
      any = arena_.node(part.a).a;
    } else {
      others.push_back(child);
    }
  }
  if (!bounded || others.empty() || shortest > longest) return {};
  // The pattern is the same at many lengths.
  const RegexId pattern = arena_.And(std::move(others));
  // Else a least length of more than one might keep it from ending.
  if (shortest > 1 && !TakesAnyMore(arena_, pattern)) return {};
  const auto [known, added] = closed_.try_emplace(pattern);
  if (added) bytes_ += sizeof(RegexRegion) + 16;
  RegexRegion region = known->second;
  const uint64_t most = search_end_ - std::min(search_work_, search_end_);
  if (region.tokens == nullptr && (added || region.searched < most)) {
    region = FindClosedRegion(pattern, any);
    region.searched = most;
    closed_[pattern] = region;
  }
  if (region.tokens == nullptr) return {};
  if (longest != kUnlimited && region.needed >= longest) return {};
  // Tokens of the class alone must not reach what follows.
  if (BeginsWithin(tail, *region.tokens)) return {};
  for (const auto& [bytes, next] : TransitionsOf(tail)) {
    if (next != kNothing) region.exits = region.exits | bytes;
  }
  if (longest != kUnlimited) region.max = std::min(region.max, longest - region.needed);
  region.longest = longest;
  return region;
}

RegexRegion RegexRegions::FindClosedRegion(RegexId state, std::optional<uint32_t> any) {
  if (const auto search = FindSearch(arena_, state)) {
    // Whatever comes, the search goes on.
    RegexRegion region;
    region.tokens = TokensOfClass(search->regex_class);
    if (region.tokens != nullptr &&
        (any.has_value() || EndsOutside(arena_, state, *region.tokens))) {
      region.max = region.longest = kUnlimited;
      region.needed = search->needed;
      region.exits = OutsideOf(*region.tokens);
      return region;
    }
  }
  // The classes by which a text may go on, the largest first.
  std::vector<uint32_t> classes;
  arena_.LeadingClasses(state, kMaxLeadingClasses, classes);
  std::sort(classes.begin(), classes.end(), [this](uint32_t a, uint32_t b) {
    return arena_.regex_class(a).code_points.size() > arena_.regex_class(b).code_points.size();
  });
  if (any.has_value()) classes.insert(classes.begin(), *any);
  std::erase_if(classes, [this](uint32_t number) {
    return arena_.regex_class(number).code_points.size() < kMinClassSize;
  });
  RegexRegion partly;
  const uint64_t end = search_end_;
  for (size_t i = 0; i < classes.size(); ++i) {
    RegexRegion region;
    region.tokens = TokensOfClass(classes[i]);
    if (region.tokens == nullptr) break;
    // Something is left for each class.
    const uint64_t others = kClassSearch * (classes.size() - 1 - i);
    search_end_ = std::max(search_work_, end - std::min(others, end));
    std::string way;
    const bool closed = IsClosed(state, region, any.has_value(), &way);
    search_end_ = end;
    region.longest = kUnlimited;
    if (closed) return region;
    if (region.max > partly.max &&
        (any.has_value() || EndsOutside(arena_, state, *region.tokens))) {
      partly = region;
    }
  }
  if (partly.max < kMinSure) return {};
  // All short tokens fit, and the few long ones are looked at one by one.
  const TokensBelow& all = partly.tokens->Below(trie_, 0, 0);
  if (all.Tokens(kUnlimited).size() - all.Tokens(partly.max).size() > kMaxUnsureTokens) return {};
  partly.exits = OutsideOf(*partly.tokens);
  return partly;
}

RegexRegion RegexRegions::FindAvoidingRegion(RegexId state) {
  std::vector<uint32_t> classes;
  arena_.LeadingClasses(state, kMaxLeadingClasses, classes);
  const auto size = [this](uint32_t number) {
    return arena_.regex_class(number).code_points.size();
  };
  std::ranges::sort(classes, {}, size);
  if (classes.empty() || size(classes.back()) < kMinClassSize) return {};
  RegexRegion region;
  region.tokens = TokensOfClass(classes.back());
  region.max = region.longest = kUnlimited;
  for (size_t i = 0; i < kMaxAvoided && region.tokens != nullptr; ++i) {
    std::string way;
    if (IsClosed(state, region, false, &way)) return region;
    std::erase_if(way, [](char byte) { return static_cast<uint8_t>(byte) >= 0x80; });
    if (way.empty()) break;
    region.avoided.Add(static_cast<uint8_t>(*std::ranges::min_element(
        way, {}, [this](char byte) { return trie_.byte_count(static_cast<uint8_t>(byte)); })));
  }
  return {};
}

const std::vector<RegexRegions::Transition>& RegexRegions::TransitionsOf(RegexId state) {
  std::unique_ptr<std::vector<Transition>>& known = transitions_[state];
  if (known != nullptr) return *known;
  known = std::make_unique<std::vector<Transition>>();
  for (ByteSet left = ByteSet::All(); !left.empty();) {
    ByteSet alike;
    const RegexId next = arena_.Derive(state, left.First(), &alike);
    known->push_back({alike & left, next});
    left = left & ~alike;
  }
  bytes_ += known->capacity() * sizeof(Transition) + 64;
  return *known;
}

// Looks at every pair of a state and a place within a code point that the class's texts reach, as
// far as tokens go, in the order of the code points that lead to them.
bool RegexRegions::IsClosed(RegexId state, RegexRegion& region, bool bounded, std::string* way) {
  struct Place {
    RegexId state;
    uint16_t row;
    uint16_t depth;  // bytes
    uint16_t count;  // whole code points
    uint8_t byte;    // by which it is reached
    uint32_t from;   // a place
  };
  const ClassTokens& tokens = *region.tokens;
  std::vector<Place> places = {{state, 0, 0, 0, 0, 0}};
  std::deque<uint32_t> next_places = {0};
  absl::flat_hash_set<uint64_t> seen = {uint64_t{state} << 16};
  const auto set_way = [&](uint32_t at) {
    for (; at != 0; at = places[at].from) way->push_back(static_cast<char>(places[at].byte));
  };
  region.exits = {};
  region.needed = 0;
  while (!next_places.empty()) {
    const uint32_t i = next_places.front();
    next_places.pop_front();
    const Place at = places[i];
    // If this is where it ends.
    region.max = at.count == 0 ? 0 : at.count - 1u;
    if (EndsTerminal(arena_, at.state)) {
      set_way(i);
      return false;
    }
    if (bounded) region.needed = std::max(region.needed, arena_.MinLength(at.state));
    if (at.depth >= trie_.max_token_bytes()) continue;
    const uint64_t before = arena_.steps();
    const auto& transitions = TransitionsOf(at.state);
    search_work_ += arena_.steps() - before + kPlaceWork;
    if (places.size() > kMaxClosedPlaces || search_work_ > search_end_) return false;
    for (const auto& [bytes, next] : transitions) {
      std::optional<uint8_t> dead;
      // Other code points than the class's may have these first bytes too.
      ByteSet leaving = at.row == 0 && next != kNothing ? bytes : ByteSet();
      for (const ClassTokens::Way& inside : tokens.Ways(at.row)) {
        const ByteSet both = bytes & inside.bytes & ~region.avoided;
        if (both.empty()) continue;
        if (next == kNothing) {
          dead = std::max(dead, std::optional(both.Last()));
          continue;
        }
        if (inside.next == 0) leaving = leaving & ~both;
        if (!seen.insert(uint64_t{next} << 16 | inside.next).second) continue;
        const bool whole = inside.next == 0;
        const auto number = static_cast<uint32_t>(places.size());
        places.push_back({next, inside.next, static_cast<uint16_t>(at.depth + 1),
                          static_cast<uint16_t>(at.count + (whole ? 1 : 0)), both.First(), i});
        if (whole) {
          next_places.push_back(number);
        } else {
          next_places.push_front(number);
        }
      }
      region.exits = region.exits | leaving;
      if (dead.has_value()) {
        way->push_back(static_cast<char>(*dead));
        set_way(i);
        return false;
      }
    }
  }
  region.max = kUnlimited;
  if (tokens.is_whole_utf8()) region.exits = region.exits & ~tokens.first_bytes();
  return true;
}

const ClassTokens* RegexRegions::TokensOfClass(uint32_t number) {
  const auto known = classes_.find(number);
  if (known != classes_.end()) return known->second.get();
  if (classes_.size() >= kMaxClasses) return nullptr;
  return (classes_[number] = trie_.TokensOfClass(PlainPart(arena_.regex_class(number)))).get();
}

bool RegexRegions::HasTable(const RegexRegion& region, uint32_t node, uint32_t depth) {
  if (trie_.node(node).digits_below < kMinTableDigits || !region.avoided.empty()) return false;
  const TokensBelow& below = region.tokens->Below(trie_, node, depth);
  if (region.only_if_beyond_tokens && region.longest < below.max_count()) return false;
  return below.Tokens(region.longest).size() - below.Tokens(region.max).size() <= kMaxSteppedTokens;
}

}  // namespace tandem::gateway::constraint
