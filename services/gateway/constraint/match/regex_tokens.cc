#include "services/gateway/constraint/match/regex_tokens.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "services/gateway/constraint/grammar/part_arena.h"
#include "services/gateway/constraint/regex/expression.h"

namespace tandem::gateway::constraint {
namespace {

// Below it a walk costs less than the class's tables.
constexpr uint32_t kMinClassSize = 20;
// Of the number of nodes below a node, in binary digits: with less it is walked as it is, and with
// less than the second it is walked without the class's tables.
constexpr uint32_t kMinRegionDigits = 9;
constexpr uint32_t kMinTableDigits = 15;
// Each takes some milliseconds and a megabyte with a vocabulary of 262,144 tokens.
constexpr size_t kMaxClasses = 32;
// Bound the search for a class whose every text fits.
constexpr size_t kMaxLeadingClasses = 3;
constexpr size_t kMaxClosedPlaces = 2000;
constexpr uint64_t kMaxSearch = 8'000;        // at a node of the trie
constexpr uint64_t kMaxSearchInAll = 16'000;  // for one state's tokens
constexpr uint64_t kPlaceWork = 4;
constexpr size_t kMaxAvoided = 12;
constexpr size_t kMaxJoint = 8;
// Tokens that are looked at one by one where a region does not say whether they fit.
constexpr size_t kMaxSteppedTokens = 16'384;

// The part of a class whose code points are written as they are.
CodePointSet PlainPart(const RegexClass& regex_class) {
  static const auto* const escaped = new CodePointSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  if (regex_class.spelling == Spelling::kPlain) return regex_class.code_points;
  return regex_class.code_points.Minus(*escaped);
}

}  // namespace

void PrepareClasses(const RegexArena& arena, const TokenTrie& trie) {
  size_t count = 0;
  for (uint32_t number = 0; number < arena.num_classes() && count < kMaxClasses; ++number) {
    const RegexClass& regex_class = arena.regex_class(number);
    if (regex_class.code_points.size() < kMinClassSize) continue;
    ++count;
    trie.TokensOfClass(PlainPart(regex_class))->Below(trie, 0, 0);
  }
}

void TokenSet::Append(const TokenSet& other) {
  for (const auto& mask : other.masks) {
    if (std::find(masks.begin(), masks.end(), mask) == masks.end()) masks.push_back(mask);
  }
  tokens.insert(tokens.end(), other.tokens.begin(), other.tokens.end());
}

void TokenSet::Compact(size_t mask_words) {
  if (tokens.size() > mask_words) {
    auto mask = std::make_shared<TokenMask>(mask_words, 0);
    for (const uint32_t token : tokens) (*mask)[token / 32] |= 1u << (token % 32);
    masks.push_back(std::move(mask));
    tokens = {};
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  tokens.shrink_to_fit();
}

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
  auto made = std::make_unique<RegexTokens>();
  search_work_ = 0;
  Walk(state, 0, 0, *made);
  made->inside.Compact(trie_.mask_words());
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

bool RegexWalker::AddRepeat(RegexId id, RepeatedClass* out) const {
  const RegexNode& node = arena_.node(id);
  const bool repeat = node.kind == RegexKind::kRepeat;
  const RegexNode& one = repeat ? arena_.node(node.a) : node;
  if (one.kind != RegexKind::kClass || (out->max > 0 && one.a != out->regex_class)) return false;
  const uint32_t min = repeat ? node.b : 1, max = repeat ? node.c : 1;
  out->regex_class = one.a;
  out->min += std::min(min, kUnlimited - out->min);
  out->max += std::min(max, kUnlimited - out->max);
  return true;
}

bool RegexWalker::FindRepeat(RegexId id, RepeatedClass* out) const {
  *out = {0, 0, 0, id};
  while (out->rest != kEmptyText) {
    const RegexNode& node = arena_.node(out->rest);
    const bool chain = node.kind == RegexKind::kConcat;
    if (!AddRepeat(chain ? node.a : out->rest, out)) break;
    out->rest = chain ? node.b : kEmptyText;
  }
  return out->max > 0;
}

const RegexWalker::Region& RegexWalker::RegionOf(RegexId state, bool avoiding) {
  auto& regions = avoiding ? avoiding_ : regions_;
  const auto [found, added] = regions.try_emplace(state);
  if (added) bytes_ += sizeof(Region) + 16;
  const uint64_t most = search_end_ - std::min(search_work_, search_end_);
  const Region& region = found->second;
  if (!added && (region.tokens != nullptr || region.searched >= most)) return region;
  Region made = avoiding ? FindAvoidingRegion(state) : FindRegion(state);
  made.searched = most;
  return regions[state] = made;
}

// Whether a terminal ends here after which the text may go on.
bool RegexWalker::EndsTerminal(RegexId state) const {
  if (!arena_.node(state).accepts) return false;
  std::vector<uint32_t> tags;
  arena_.AcceptedTags(state, tags);
  return std::ranges::any_of(tags, [](uint32_t tag) { return tag != kFinalTag; });
}

// The state is a repeat of a class and something after it, for which
//   - every token of up to `max` of the class's code points is allowed, and
//   - every other allowed token leaves the class by a byte of what comes after.
RegexWalker::Region RegexWalker::FindRegion(RegexId state) {
  if (arena_.node(state).kind == RegexKind::kOr) {
    const Region joint = FindJointRegion(state);
    if (joint.tokens != nullptr) return joint;
  }
  const Region region = FindRepeatRegion(state);
  if (region.tokens != nullptr && !BeginsWithLargerClass(state, *region.tokens)) return region;
  Region larger = FindBoundedRegion(state);
  if (larger.tokens == nullptr) larger = FindClosedRegion(state);
  return larger.tokens != nullptr ? larger : region;
}

bool RegexWalker::BeginsWithLargerClass(RegexId state, const ClassTokens& tokens) const {
  std::vector<uint32_t> classes;
  arena_.LeadingClasses(state, kMaxLeadingClasses, classes);
  const uint32_t size = tokens.code_points().size();
  return std::ranges::any_of(classes, [&](uint32_t number) {
    return arena_.regex_class(number).code_points.size() / 2 > size;
  });
}

bool RegexWalker::BeginsWithin(RegexId id, const ClassTokens& tokens) {
  return std::ranges::any_of(TransitionsOf(id), [&](const Transition& transition) {
    return transition.next != kNothing && !(transition.bytes & tokens.first_bytes()).empty();
  });
}

RegexWalker::Region RegexWalker::FindRepeatRegion(RegexId state) {
  Region region;
  const RegexNode& node = arena_.node(state);
  if (node.kind != RegexKind::kConcat || EndsTerminal(node.b)) return region;
  const RegexNode& head = arena_.node(node.a);
  RepeatedClass found;
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
        if (arena_.node(child).kind == RegexKind::kRepeat && !FindRepeat(child, &found)) {
          return region;
        }
      }
      longest = found.max;
    } else {
      if (!FindRepeat(pattern, &found) || arena_.node(found.rest).boolean) return region;
      if (excluded > 0) {
        const bool free = excluded != RegexArena::kNoLength && found.rest == kEmptyText &&
                          found.max > excluded && longest > excluded;
        if (!free) return region;
      }
      // A text of the least length must be there: the repeat fills it.
      if (any_pattern && found.max != kUnlimited) return region;
      if (longest != kUnlimited) {
        // An upper bound: tokens that leave less may fit.
        const uint64_t needed = arena_.MinLength(found.rest);
        if (needed + found.min > longest) return region;
        sure = longest - static_cast<uint32_t>(needed);
      }
      longest = std::min(longest, found.max);
    }
  } else {
    if (!FindRepeat(state, &found) || EndsTerminal(found.rest)) return region;
    longest = found.max;
  }
  const RegexClass& regex_class = arena_.regex_class(found.regex_class);
  if (regex_class.code_points.size() < kMinClassSize) return region;
  const ClassTokens* tokens = TokensOfClass(found.regex_class);
  if (tokens == nullptr) return region;
  ByteSet after = arena_.Alphabet(found.rest);
  if (head.kind == RegexKind::kAnd) after = after | arena_.Alphabet(node.b);
  const bool overlaps = !(after & tokens->first_bytes()).empty();
  // Where what follows may read the class's code points too, it may take those beyond the limit.
  sure = std::min(sure, longest);
  region.only_if_beyond_tokens = overlaps && (found.max != kUnlimited || sure < longest);
  region.longest = overlaps ? sure : longest;
  if (overlaps && length != kUnlimited && !BeginsWithin(node.b, *tokens)) {
    // But not beyond the length.
    region.only_if_beyond_tokens = false;
    region.longest = length;
  }
  region.exits = after;
  if (regex_class.spelling != Spelling::kPlain) region.exits.Add('\\');
  region.tokens = tokens;
  region.max = sure;
  return region;
}

bool RegexWalker::EndsOutside(RegexId id, const ClassTokens& tokens) const {
  for (;; id = arena_.node(id).b) {
    const RegexNode& node = arena_.node(id);
    if (node.kind == RegexKind::kOr) {
      return std::ranges::all_of(arena_.children(node),
                                 [&](RegexId child) { return EndsOutside(child, tokens); });
    }
    const bool chain = node.kind == RegexKind::kConcat;
    const RegexNode& head = chain ? arena_.node(node.a) : node;
    if (head.kind == RegexKind::kLiteral &&
        std::ranges::any_of(arena_.literal(head), [&](char byte) {
          return static_cast<uint8_t>(byte) < 0x80 &&
                 !tokens.first_bytes().Contains(static_cast<uint8_t>(byte));
        })) {
      return true;
    }
    if (!chain) return false;
  }
}

RegexWalker::Region RegexWalker::FindJointRegion(RegexId state) {
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
    Region region = FindRepeatRegion(arena_.Concat(arena_.And(std::move(parts)), tail));
    if (region.tokens == nullptr || region.max != kUnlimited) continue;
    if (!EndsOutside(state, *region.tokens)) continue;
    const ByteSet inside =
        region.tokens->is_whole_utf8() ? ByteSet::All() : ByteSet::Range(0, 0x7F);
    region.exits = ~(region.tokens->first_bytes() & inside);
    return region;
  }
  return {};
}

// A pattern and a length: as the pattern alone where it is closed, but for long texts.
RegexWalker::Region RegexWalker::FindBoundedRegion(RegexId state) {
  const RegexNode node = arena_.node(state);
  const bool chain = node.kind == RegexKind::kConcat;
  const RegexId head = chain ? node.a : state, tail = chain ? node.b : kEmptyText;
  if (arena_.node(head).kind != RegexKind::kAnd || EndsTerminal(tail)) return {};
  std::vector<RegexId> others;
  uint32_t longest = kUnlimited, any = 0;
  for (const RegexId child : arena_.children(arena_.node(head))) {
    const RegexNode& part = arena_.node(child);
    // A least length of more than one might keep a pattern from ending.
    const bool bounds = part.kind == RegexKind::kRepeat && part.b <= 1 && part.c != kUnlimited &&
                        arena_.IsAnyCodePoint(part.a);
    if (bounds) {
      longest = std::min(longest, part.c);
      any = arena_.node(part.a).a;
    } else {
      others.push_back(child);
    }
  }
  if (longest == kUnlimited || others.empty()) return {};
  // The pattern is the same at many lengths.
  const RegexId pattern = arena_.And(std::move(others));
  const auto [known, added] = closed_.try_emplace(pattern);
  if (added) bytes_ += sizeof(Region) + 16;
  Region region = known->second;
  const uint64_t most = search_end_ - std::min(search_work_, search_end_);
  if (region.tokens == nullptr && (added || region.searched < most)) {
    region = FindClosedRegion(pattern, any);
    region.searched = most;
    closed_[pattern] = region;
  }
  if (region.tokens == nullptr || region.needed >= longest) return {};
  // Tokens of the class alone must not reach what follows.
  if (BeginsWithin(tail, *region.tokens)) return {};
  for (const auto& [bytes, next] : TransitionsOf(tail)) {
    if (next != kNothing) region.exits = region.exits | bytes;
  }
  region.max = longest - region.needed;
  region.longest = longest;
  return region;
}

RegexWalker::Region RegexWalker::FindClosedRegion(RegexId state, std::optional<uint32_t> any) {
  // The classes by which a text may go on, the largest first.
  std::vector<uint32_t> classes;
  arena_.LeadingClasses(state, kMaxLeadingClasses, classes);
  std::sort(classes.begin(), classes.end(), [this](uint32_t a, uint32_t b) {
    return arena_.regex_class(a).code_points.size() > arena_.regex_class(b).code_points.size();
  });
  if (any.has_value()) classes.insert(classes.begin(), *any);
  Region region;
  for (const uint32_t number : classes) {
    if (arena_.regex_class(number).code_points.size() < kMinClassSize) break;
    region.tokens = TokensOfClass(number);
    if (region.tokens == nullptr) break;
    region.max = region.longest = kUnlimited;
    std::string way;
    if (IsClosed(state, region, any.has_value(), &way)) return region;
  }
  return Region();
}

RegexWalker::Region RegexWalker::FindAvoidingRegion(RegexId state) {
  std::vector<uint32_t> classes;
  arena_.LeadingClasses(state, kMaxLeadingClasses, classes);
  const auto size = [this](uint32_t number) {
    return arena_.regex_class(number).code_points.size();
  };
  std::ranges::sort(classes, {}, size);
  if (classes.empty() || size(classes.back()) < kMinClassSize) return {};
  Region region;
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

const std::vector<RegexWalker::Transition>& RegexWalker::TransitionsOf(RegexId state) {
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
// far as tokens go.
bool RegexWalker::IsClosed(RegexId state, Region& region, bool bounded, std::string* way) {
  struct Place {
    RegexId state;
    uint16_t row;
    uint16_t depth;  // bytes; the least
    uint32_t from;   // a place
    uint8_t byte;    // by which it is reached
  };
  const ClassTokens& tokens = *region.tokens;
  std::vector<Place> places = {{state, 0, 0, 0, 0}};
  absl::flat_hash_set<uint64_t> seen = {uint64_t{state} << 16};
  const auto set_way = [&](uint32_t at) {
    for (; at != 0; at = places[at].from) way->push_back(static_cast<char>(places[at].byte));
  };
  region.exits = {};
  region.needed = 0;
  for (uint32_t i = 0; i < places.size(); ++i) {
    const Place at = places[i];
    if (EndsTerminal(at.state)) {
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
      bytes.ForEach([&, next = next](uint8_t byte) {
        const uint16_t row = tokens.Next(at.row, byte);
        const bool inside = row != ClassTokens::kDead && !region.avoided.Contains(byte);
        if (inside && next == kNothing) dead = byte;
        if (next == kNothing) return;
        // Other code points than the class's may have this first byte too.
        if (at.row == 0 && (!inside || row != 0)) region.exits.Add(byte);
        if (inside && seen.insert(uint64_t{next} << 16 | row).second) {
          places.push_back({next, row, static_cast<uint16_t>(at.depth + 1), i, byte});
        }
      });
      if (dead.has_value()) {
        way->push_back(static_cast<char>(*dead));
        set_way(i);
        return false;
      }
    }
  }
  if (tokens.is_whole_utf8()) region.exits = region.exits & ~tokens.first_bytes();
  return true;
}

const ClassTokens* RegexWalker::TokensOfClass(uint32_t number) {
  const auto known = classes_.find(number);
  if (known != classes_.end()) return known->second.get();
  if (classes_.size() >= kMaxClasses) return nullptr;
  return (classes_[number] = trie_.TokensOfClass(PlainPart(arena_.regex_class(number)))).get();
}

bool RegexWalker::HasTable(const Region& region, uint32_t node, uint32_t depth) {
  if (trie_.node(node).digits_below < kMinTableDigits || !region.avoided.empty()) return false;
  const TokensBelow& below = region.tokens->Below(trie_, node, depth);
  if (region.only_if_beyond_tokens && region.longest < below.max_count()) return false;
  return below.Tokens(region.longest).size() - below.Tokens(region.max).size() <= kMaxSteppedTokens;
}

// Alternatives with a region each are looked at one by one.  Two that leave a class each by what
// the other one takes have a region together, here or further on.
RegexId RegexWalker::AddRegions(RegexId state, uint32_t node, uint32_t depth, RegexTokens& out) {
  // A search is worth a part of what a walk takes.
  const uint64_t most =
      std::min<uint64_t>(trie_.subtree(trie_.node(node))->num_nodes / 8, kMaxSearch);
  search_end_ = std::min(search_work_ + most, kMaxSearchInAll);
  if (arena_.node(state).kind != RegexKind::kOr) {
    return AddRegion(state, node, depth, out) ? kNothing : state;
  }
  const auto span = arena_.children(arena_.node(state));
  const std::vector<RegexId> children(span.begin(), span.end());
  // Patterns that exclude each other: what one does not take the other one does.
  const auto wide =
      std::ranges::count_if(children, [this](RegexId child) { return arena_.node(child).boolean; });
  if (wide > 1 && RegionOf(state, false).tokens != nullptr) {
    AddRegion(state, node, depth, out);
    return kNothing;
  }
  std::vector<RegexId> with, walked, rest;
  for (const RegexId child : children) {
    const Region& region = RegionOf(child, false);
    const bool has_table = region.tokens != nullptr && HasTable(region, node, depth);
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
    return AddRegion(state, node, depth, out) ? kNothing : state;
  }
  for (const RegexId child : with) AddRegion(child, node, depth, out);
  return arena_.Or(std::move(rest));
}

bool RegexWalker::AddRegion(RegexId state, uint32_t node, uint32_t depth, RegexTokens& out) {
  Region region = RegionOf(state, false);
  if (region.tokens == nullptr) region = RegionOf(state, true);
  if (region.tokens == nullptr) return false;
  if (HasTable(region, node, depth)) {
    AddTable(state, region, node, depth, out);
  } else {
    WalkRegion(state, region, 0, region.max, node, depth, out);
  }
  return true;
}

void RegexWalker::AddTable(RegexId state, const Region& region, uint32_t node, uint32_t depth,
                           RegexTokens& out) {
  const TokensBelow& below = region.tokens->Below(trie_, node, depth);
  const auto tokens = below.Tokens(region.max);
  if (tokens.size() > trie_.mask_words()) {
    out.inside.masks.push_back(below.Mask(region.max));
  } else {
    out.inside.tokens.insert(out.inside.tokens.end(), tokens.begin(), tokens.end());
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
      out.inside.tokens.push_back(token);
    }
  }
  region.exits.ForEach([&](uint8_t byte) {
    for (const TokensBelow::Exit& exit : below.exits(byte)) {
      const RegexId at = state_after(trie_.bytes(exit.token).substr(depth, exit.depth - depth));
      if (at != kNothing) Arrive(at, exit.node, exit.depth, out);
    }
  });
}

void RegexWalker::WalkRegion(RegexId state, const Region& region, uint16_t row, uint32_t max,
                             uint32_t node_id, uint32_t depth, RegexTokens& out) {
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
      AddTokens(child, out);
      continue;
    }
    const uint32_t left = row == 0 && max != kUnlimited ? max - 1 : max;
    if (next_row == 0 && child.height <= left) {
      const Subtree* const subtree = trie_.subtree(child);
      if (subtree != nullptr && subtree->height <= left && region.Takes(*subtree)) {
        AddTokens(child, out);
        AddTokens(*subtree, out);
        continue;
      }
    }
    const RegexId next = Step(state, child.byte);
    if (next == kNothing) continue;
    if (inside) {
      AddTokens(child, out);
      WalkRegion(next, region, next_row, left, child_id, depth + 1, out);
    } else {
      Arrive(next, child_id, depth + 1, out);
    }
  }
}

void RegexWalker::AddTokens(const TrieNode& node, RegexTokens& out) const {
  trie_.ForEachToken(node, [&](uint32_t token) { out.inside.tokens.push_back(token); });
}

void RegexWalker::AddTokens(const Subtree& subtree, RegexTokens& out) {
  const auto tokens = trie_.Tokens(subtree);
  out.inside.tokens.insert(out.inside.tokens.end(), tokens.begin(), tokens.end());
  ++visits_;
}

bool RegexWalker::Loops(RegexId state, const Subtree& subtree) {
  if (!subtree.is_ascii() && !subtree.code_points) return false;
  if (EndsTerminal(state)) return false;
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
    loops = at != kNothing && !EndsTerminal(at);
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

void RegexWalker::Walk(RegexId state, uint32_t node_id, uint32_t depth, RegexTokens& out) {
  const TrieNode node = trie_.node(node_id);
  if (node.digits_below >= kMinRegionDigits) state = AddRegions(state, node_id, depth, out);
  if (state == kNothing || exceeded()) return;
  visits_ += node.num_children;
  for (uint32_t i = 0; i < node.num_children; ++i) {
    const TrieNode& child = trie_.node(node.first_child + i);
    const RegexId next = Step(state, child.byte);
    if (next == kNothing) continue;
    if (child.num_children == 0) {
      AddTokens(child, out);
    } else {
      Arrive(next, node.first_child + i, depth + 1, out);
    }
  }
}

// `state` is reached at `node`.
void RegexWalker::Arrive(RegexId state, uint32_t node_id, uint32_t depth, RegexTokens& out) {
  const TrieNode& node = trie_.node(node_id);
  AddTokens(node, out);
  if (node.num_children == 0) return;
  if (arena_.node(state).accepts) {
    std::vector<uint32_t> tags;
    arena_.AcceptedTags(state, tags);
    for (const uint32_t tag : tags) {
      for (uint32_t i = 0; i < node.num_children && tag != kFinalTag; ++i) {
        out.exits.push_back({tag, trie_.node(node.first_child + i).byte, node.first_child + i});
      }
    }
    if (arena_.OnlyTags(state)) return;
  }
  const Subtree* const subtree = trie_.subtree(node);
  const uint8_t first = trie_.node(node.first_child).byte;
  const bool may_loop = subtree != nullptr && (first >= 0x80 || Step(state, first) == state);
  if (may_loop && Loops(state, *subtree)) return AddTokens(*subtree, out);
  Walk(state, node_id, depth, out);
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
  regions_.clear();
  avoiding_.clear();
  closed_.clear();
  transitions_.clear();
  loops_.clear();
  bytes_ = 0;
}

}  // namespace tandem::gateway::constraint
