// The part of RegexArena that walks: derivatives, liveness, what a node tells of its texts.
#include <algorithm>
#include <queue>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "services/gateway/constraint/regex/expression.h"
#include "services/gateway/constraint/regex/regex_arena.h"

namespace tandem::gateway::constraint {
namespace {

// Bounds the search of a node whose answer only saves time.
constexpr int kMaxVisitedNodes = 500;
constexpr int kMaxLengthVisits = 5000;  // enough for some hundred names

void Restrict(ByteSet* alike, const ByteSet& set, uint8_t byte) {
  *alike = *alike & (set.Contains(byte) ? set : ~set);
}

}  // namespace

RegexId RegexArena::Derive(RegexId id, uint8_t byte, ByteSet* alike) {
  const RegexId result = DeriveRaw(id, byte, alike);
  return nodes_[result].boolean ? WithoutDead(result, 2000) : result;
}

RegexId RegexArena::DeriveRaw(RegexId id, uint8_t byte, ByteSet* alike) {
  ++call_;
  *alike = ByteSet::All();
  return DeriveNode(id, byte, alike);
}

// Whether it begins with a literal whose first byte is another one: most alternatives of a tree of
// texts do.
bool RegexArena::BeginsOtherwise(RegexId id, uint8_t byte, ByteSet* alike) const {
  const RegexNode& head = nodes_[Head(id)];
  if (head.kind != RegexKind::kLiteral) return false;
  const auto first = static_cast<uint8_t>(literals_[head.a]);
  if (first == byte) return false;
  alike->Remove(first);
  return true;
}

RegexId RegexArena::DeriveNode(RegexId id, uint8_t byte, ByteSet* alike) {
  ++steps_;
  const RegexNode node = nodes_[id];  // a copy: nodes_ grows below
  switch (node.kind) {
    case RegexKind::kNone:
    case RegexKind::kEmpty:
    case RegexKind::kTag:
      return kNothing;
    case RegexKind::kBytes:
      Restrict(alike, byte_sets_[node.a], byte);
      return byte_sets_[node.a].Contains(byte) ? kEmptyText : kNothing;
    case RegexKind::kLiteral: {
      ByteSet first;
      first.Add(static_cast<uint8_t>(literals_[node.a]));
      Restrict(alike, first, byte);
      if (!first.Contains(byte)) return kNothing;
      return Literal(std::string_view(literals_).substr(node.a + 1, node.b - 1));
    }
    case RegexKind::kClass: {
      const RegexClass& c = classes_[node.a];
      const RegexClass::Group& group = c.groups[c.group_of[byte]];
      *alike = *alike & group.bytes;
      return group.derivative;
    }
    default:
      break;
  }
  if (id == kAnything) return kAnything;
  if (memo_.size() < nodes_.size()) memo_.resize(std::max(nodes_.size(), memo_.size() * 2));
  if (memo_[id].call == call_) return memo_[id].result;
  RegexId result = kNothing;
  switch (node.kind) {
    case RegexKind::kConcat:
      result = DeriveConcat(id, byte, alike);
      break;
    case RegexKind::kOr:
    case RegexKind::kAnd: {
      std::vector<RegexId> derived;
      derived.reserve(node.b);
      for (uint32_t i = 0; i < node.b; ++i) {
        if (node.kind == RegexKind::kOr && BeginsOtherwise(children_[node.a + i], byte, alike)) {
          continue;
        }
        const RegexId child = DeriveNode(children_[node.a + i], byte, alike);
        if (node.kind == RegexKind::kOr && child == kNothing) continue;
        derived.push_back(child);
        if (node.kind == RegexKind::kAnd && child == kNothing) break;
      }
      result = node.kind == RegexKind::kOr ? Or(std::move(derived)) : And(std::move(derived));
      break;
    }
    case RegexKind::kNot:
      result = Not(DeriveNode(node.a, byte, alike));
      break;
    case RegexKind::kRepeat: {
      const RegexId head = DeriveNode(node.a, byte, alike);
      if (head == kNothing) break;
      const uint32_t min = node.b == 0 ? 0 : node.b - 1;
      const uint32_t max = node.c == kUnlimited ? kUnlimited : node.c - 1;
      result = Concat(head, Repeat(node.a, min, max));
      break;
    }
    default:
      break;
  }
  if (memo_.size() <= id) memo_.resize(id + 1);
  memo_[id] = {call_, result};
  return result;
}

// A loop along the chain: a chain of optional parts may be long.
RegexId RegexArena::DeriveConcat(RegexId id, uint8_t byte, ByteSet* alike) {
  std::vector<RegexId> parts;
  RegexId rest = id;
  while (nodes_[rest].kind == RegexKind::kConcat) {
    const RegexId head = nodes_[rest].a;
    const RegexId tail = nodes_[rest].b;
    const RegexId derived = DeriveNode(head, byte, alike);
    if (derived != kNothing) parts.push_back(Concat(derived, tail));
    if (!nodes_[head].nullable) return Or(std::move(parts));
    rest = tail;
  }
  parts.push_back(DeriveNode(rest, byte, alike));
  return Or(std::move(parts));
}

RegexId RegexArena::WithoutDead(RegexId id, size_t max_states) {
  const RegexNode node = nodes_[id];
  if (!node.boolean) return id;
  if (node.kind == RegexKind::kOr) {
    std::vector<RegexId> kept;
    for (uint32_t i = 0; i < node.b; ++i) {
      kept.push_back(WithoutDead(children_[node.a + i], max_states));
    }
    return Or(std::move(kept));
  }
  return IsLive(id, max_states) ? id : kNothing;
}

bool RegexArena::IsLive(RegexId id, size_t max_states) {
  if (!nodes_[id].boolean) return id != kNothing;
  while (nodes_[id].kind == RegexKind::kConcat) {
    if (!IsLive(nodes_[id].a, max_states)) return false;
    id = nodes_[id].b;
  }
  const RegexNode node = nodes_[id];
  switch (node.kind) {
    case RegexKind::kOr:
      for (uint32_t i = 0; i < node.b; ++i) {
        if (IsLive(children_[node.a + i], max_states)) return true;
      }
      return false;
    case RegexKind::kRepeat:
      return node.b == 0 || IsLive(node.a, max_states);
    case RegexKind::kAnd:
    case RegexKind::kNot:
      if (node.nullable || FitsLength(node)) return true;
      if (live_.size() <= id) live_.resize(nodes_.size());
      if (live_[id] == 0) {
        const bool live = ExploreIsLive(id, max_states);
        if (live_.size() < nodes_.size()) live_.resize(nodes_.size());
        live_[id] = live ? 1 : 2;
      }
      return live_[id] == 1;
    default:
      return id != kNothing;
  }
}

// Whether the node is a pattern and a length that the pattern's shortest text has or can grow to.
bool RegexArena::FitsLength(const RegexNode& both) const {
  if (both.kind != RegexKind::kAnd || both.b != 2) return false;
  for (const uint32_t i : {0u, 1u}) {
    const RegexNode& length = nodes_[children_[both.a + i]];
    if (length.kind != RegexKind::kRepeat || !IsAnyCodePoint(length.a)) continue;
    const RegexId pattern = children_[both.a + 1 - i];
    const uint32_t shortest = MinLength(pattern);
    if (shortest == kNoLength || shortest > length.c) return false;
    const RegexNode& head = nodes_[Head(pattern)];
    const bool grows = head.kind == RegexKind::kRepeat && head.c == kUnlimited &&
                       nodes_[head.a].kind == RegexKind::kClass;
    return length.b == 0 || (grows && length.b <= length.c);
  }
  return false;
}

// How many code points a text of `id` has at least, as far as it is known: where to look first.
uint32_t RegexArena::LeastToGo(RegexId id) const {
  const RegexNode& node = nodes_[id];
  if (node.kind != RegexKind::kAnd) return node.shortest == kNoLength ? 0 : node.shortest;
  uint32_t least = 0;
  for (const RegexId child : children(node)) {
    if (nodes_[child].shortest != kNoLength) least = std::max(least, nodes_[child].shortest);
  }
  return least;
}

// Goes on where the least is left to go, and there from the last one found, so that a long text
// that leads out is found quickly.  A state is left for the first next one that is nearer, or has
// nothing known to go.
bool RegexArena::ExploreIsLive(RegexId id, size_t max_states) {
  struct Reached {
    RegexId state;
    uint32_t from;
    ByteSet left;
  };
  std::vector<Reached> reached = {{id, 0, ByteSet::All()}};
  absl::flat_hash_set<RegexId> seen = {id};
  std::priority_queue<std::pair<int64_t, uint32_t>> open;  // less to go is more
  open.push({-int64_t{LeastToGo(id)}, 0});
  while (!open.empty()) {
    const auto [to_go, at] = open.top();
    open.pop();
    while (!reached[at].left.empty()) {
      ByteSet alike;
      const RegexId next = DeriveRaw(reached[at].state, reached[at].left.First(), &alike);
      reached[at].left = reached[at].left & ~alike;
      if (next == kNothing) continue;
      const bool known = next < live_.size() && live_[next] != 0;
      if (known && live_[next] == 2) continue;
      if (known || nodes_[next].nullable || !nodes_[next].boolean) {
        // So are all on the way there.
        if (live_.size() < nodes_.size()) live_.resize(nodes_.size());
        for (uint32_t i = at; i != 0; i = reached[i].from) live_[reached[i].state] = 1;
        return true;
      }
      if (!seen.insert(next).second) continue;
      if (seen.size() > max_states) return true;
      const int64_t next_to_go = -int64_t{LeastToGo(next)};
      const bool nearer = next_to_go > to_go || next_to_go == 0;
      if (nearer) open.push({to_go, at});
      open.push({next_to_go, static_cast<uint32_t>(reached.size())});
      reached.push_back({next, at, ByteSet::All()});
      if (nearer) break;
    }
  }
  // None of them leads out.
  if (live_.size() < nodes_.size()) live_.resize(nodes_.size());
  for (const RegexId dead : seen) live_[dead] = 2;
  return false;
}

void RegexArena::AcceptedTags(RegexId id, std::vector<uint32_t>& tags) const {
  const RegexNode& node = nodes_[id];
  if (!node.accepts) return;
  if (node.kind == RegexKind::kTag) {
    tags.push_back(node.a);
  } else if (node.kind == RegexKind::kConcat) {
    AcceptedTags(node.b, tags);
  } else {
    for (const RegexId child : children(node)) AcceptedTags(child, tags);
  }
}

bool RegexArena::OnlyTags(RegexId id) const {
  const RegexNode& node = nodes_[id];
  if (node.kind != RegexKind::kOr) return node.kind == RegexKind::kTag || id == kEmptyText;
  return std::ranges::all_of(children(node), [this](RegexId child) { return OnlyTags(child); });
}

void RegexArena::LeadingClasses(RegexId id, size_t most, std::vector<uint32_t>& classes) const {
  std::vector<RegexId> left = {id};
  for (int visits = 0; !left.empty() && visits < kMaxVisitedNodes && classes.size() < most;
       ++visits) {
    const RegexNode& node = nodes_[left.back()];
    left.pop_back();
    switch (node.kind) {
      case RegexKind::kClass:
        if (std::find(classes.begin(), classes.end(), node.a) == classes.end()) {
          classes.push_back(node.a);
        }
        break;
      case RegexKind::kConcat:
        if (nodes_[node.a].nullable) left.push_back(node.b);
        left.push_back(node.a);
        break;
      case RegexKind::kOr:
      case RegexKind::kAnd:
        for (const RegexId child : children(node)) left.push_back(child);
        break;
      case RegexKind::kRepeat:
      case RegexKind::kNot:
        left.push_back(node.a);
        break;
      default:
        break;
    }
  }
}

ByteSet RegexArena::Alphabet(RegexId id) const {
  ByteSet all;
  absl::flat_hash_set<RegexId> seen = {id};
  std::vector<RegexId> left = {id};
  while (!left.empty()) {
    const RegexNode& node = nodes_[left.back()];
    left.pop_back();
    const auto visit = [&](RegexId child) {
      if (seen.insert(child).second) left.push_back(child);
    };
    if (seen.size() > kMaxVisitedNodes) return ByteSet::All();
    switch (node.kind) {
      case RegexKind::kBytes:
        all = all | byte_sets_[node.a];
        break;
      case RegexKind::kLiteral:
        for (const char c : literal(node)) all.Add(static_cast<uint8_t>(c));
        break;
      case RegexKind::kClass:
        visit(classes_[node.a].bytes);
        break;
      case RegexKind::kConcat:
        visit(node.a);
        visit(node.b);
        break;
      case RegexKind::kOr:
      case RegexKind::kAnd:
        for (const RegexId child : children(node)) visit(child);
        break;
      case RegexKind::kRepeat:
        visit(node.a);
        break;
      case RegexKind::kNot:
        return ByteSet::All();
      default:
        break;
    }
  }
  return all;
}

void RegexArena::GroupDerivatives(RegexClass& regex_class) {
  for (ByteSet left = ByteSet::All(); !left.empty();) {
    RegexClass::Group group;
    group.derivative = DeriveRaw(regex_class.bytes, left.First(), &group.bytes);
    left = left & ~group.bytes;
    group.bytes.ForEach([&](uint8_t byte) {
      regex_class.group_of[byte] = static_cast<uint8_t>(regex_class.groups.size());
    });
    regex_class.groups.push_back(group);
  }
}

bool RegexArena::IsAnyCodePoint(RegexId id) const {
  const RegexNode& node = nodes_[id];
  if (node.kind != RegexKind::kClass) return false;
  static const auto* const all = new CodePointSet(CodePointSet::All());
  return classes_[node.a].code_points == *all;
}

uint32_t RegexArena::MaxLength(RegexId id, int& visits) const {
  if (++visits > kMaxLengthVisits) return kNoLength;
  const RegexNode& node = nodes_[id];
  const auto add = [](uint32_t x, uint32_t y) { return x > kNoLength - y ? kNoLength : x + y; };
  switch (node.kind) {
    case RegexKind::kBytes:
      return 1;
    case RegexKind::kLiteral:
      return node.b;
    case RegexKind::kClass:
      return 12;  // two \u escapes
    case RegexKind::kConcat:
      return add(MaxLength(node.a, visits), MaxLength(node.b, visits));
    case RegexKind::kRepeat: {
      const uint64_t one = MaxLength(node.a, visits);
      if (node.c == kUnlimited || one * node.c >= kNoLength) return kNoLength;
      return static_cast<uint32_t>(one * node.c);
    }
    case RegexKind::kOr: {
      uint32_t longest = 0;
      for (const RegexId child : children(node)) {
        longest = std::max(longest, MaxLength(child, visits));
      }
      return longest;
    }
    case RegexKind::kAnd: {
      uint32_t longest = kNoLength;
      for (const RegexId child : children(node)) {
        longest = std::min(longest, MaxLength(child, visits));
      }
      return longest;
    }
    case RegexKind::kNot:
      return kNoLength;
    default:
      return 0;
  }
}

}  // namespace tandem::gateway::constraint
