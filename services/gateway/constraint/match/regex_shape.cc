#include "services/gateway/constraint/match/regex_shape.h"

#include <algorithm>
#include <vector>

#include "services/gateway/constraint/grammar/part_arena.h"
#include "services/gateway/constraint/regex/expression.h"

namespace tandem::gateway::constraint {
namespace {

// Alternatives share what they have in common, so that the ways through them can be many more than the nodes.
constexpr int kMaxVisits = 1000;
// Code points of a class that has most of all.
constexpr uint32_t kMinSkipped = 0x10000;

// Adds a node's repeats of the class of `out`, or of its first class.
bool AddRepeat(const RegexArena& arena, RegexId id, RepeatedClass* out) {
  const RegexNode& node = arena.node(id);
  const bool repeat = node.kind == RegexKind::kRepeat;
  const RegexNode& one = repeat ? arena.node(node.a) : node;
  if (one.kind != RegexKind::kClass || (out->max > 0 && one.a != out->regex_class)) return false;
  const uint32_t min = repeat ? node.b : 1, max = repeat ? node.c : 1;
  out->regex_class = one.a;
  out->min += std::min(min, kUnlimited - out->min);
  out->max += std::min(max, kUnlimited - out->max);
  return true;
}

bool EndsOutside(const RegexArena& arena, RegexId id, const ClassTokens& tokens, int& visits) {
  for (;; id = arena.node(id).b) {
    if (++visits > kMaxVisits) return false;
    const RegexNode& node = arena.node(id);
    if (node.kind == RegexKind::kOr) {
      return std::ranges::all_of(arena.children(node), [&](RegexId child) {
        return EndsOutside(arena, child, tokens, visits);
      });
    }
    const bool chain = node.kind == RegexKind::kConcat;
    const RegexNode& head = chain ? arena.node(node.a) : node;
    if (head.kind == RegexKind::kLiteral &&
        std::ranges::any_of(arena.literal(head), [&](char byte) {
          return static_cast<uint8_t>(byte) < 0x80 &&
                 !tokens.first_bytes().Contains(static_cast<uint8_t>(byte));
        })) {
      return true;
    }
    if (!chain) return false;
  }
}

std::optional<Search> FindSearch(const RegexArena& arena, RegexId id, int& visits) {
  if (++visits > kMaxVisits) return std::nullopt;
  const RegexNode& node = arena.node(id);
  if (node.kind == RegexKind::kOr) {
    for (const RegexId child : arena.children(node)) {
      if (const auto found = FindSearch(arena, child, visits)) return found;
    }
    return std::nullopt;
  }
  if (node.boolean) return std::nullopt;  // it may be empty
  if (node.kind == RegexKind::kConcat && arena.node(node.a).kind == RegexKind::kOr) {
    auto found = FindSearch(arena, node.a, visits);
    if (found) found->needed += std::min(arena.MinLength(node.b), kUnlimited - found->needed);
    return found;
  }
  const auto skipped = FindRepeat(arena, id);
  if (!skipped || skipped->max != kUnlimited) return std::nullopt;
  if (arena.regex_class(skipped->regex_class).code_points.size() < kMinSkipped) {
    return std::nullopt;
  }
  return Search{skipped->regex_class, arena.MinLength(id)};
}

bool TakesAnyMore(const RegexArena& arena, RegexId id, int& visits) {
  while (arena.node(id).kind == RegexKind::kConcat && ++visits <= kMaxVisits) id = arena.node(id).b;
  if (++visits > kMaxVisits) return false;
  const RegexNode& node = arena.node(id);
  if (node.kind == RegexKind::kOr || node.kind == RegexKind::kAnd) {
    return std::ranges::all_of(arena.children(node),
                               [&](RegexId child) { return TakesAnyMore(arena, child, visits); });
  }
  return node.kind == RegexKind::kRepeat && node.c == kUnlimited && arena.IsAnyCodePoint(node.a);
}

}  // namespace

bool EndsTerminal(const RegexArena& arena, RegexId state) {
  if (!arena.node(state).accepts) return false;
  std::vector<uint32_t> tags;
  arena.AcceptedTags(state, tags);
  return std::ranges::any_of(tags, [](uint32_t tag) { return tag != kFinalTag; });
}

bool EndsOutside(const RegexArena& arena, RegexId id, const ClassTokens& tokens) {
  int visits = 0;
  return EndsOutside(arena, id, tokens, visits);
}

std::optional<RepeatedClass> FindRepeat(const RegexArena& arena, RegexId id) {
  RepeatedClass found{.rest = id};
  while (found.rest != kEmptyText) {
    const RegexNode& node = arena.node(found.rest);
    const bool chain = node.kind == RegexKind::kConcat;
    if (!AddRepeat(arena, chain ? node.a : found.rest, &found)) break;
    found.rest = chain ? node.b : kEmptyText;
  }
  if (found.max == 0) return std::nullopt;
  return found;
}

std::optional<Search> FindSearch(const RegexArena& arena, RegexId id) {
  int visits = 0;
  return FindSearch(arena, id, visits);
}

bool TakesAnyMore(const RegexArena& arena, RegexId id) {
  int visits = 0;
  return TakesAnyMore(arena, id, visits);
}

}  // namespace tandem::gateway::constraint
