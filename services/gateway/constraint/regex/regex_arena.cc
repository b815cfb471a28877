#include "services/gateway/constraint/regex/regex_arena.h"

#include <algorithm>
#include <utility>

#include "services/common/base/check.h"
#include "services/gateway/constraint/regex/expression.h"
#include "services/gateway/constraint/work_time.h"

namespace tandem::gateway::constraint {
namespace {

constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * kMultiplier;
  return hash ^ (hash >> 29);
}

// With its place in the table of classes.
size_t BytesOf(const RegexClass& c) {
  return sizeof(c) + c.groups.size() * sizeof(RegexClass::Group) +
         c.code_points.ranges().size() * sizeof(CodePointRange) + 64;
}

bool HasSpan(RegexKind kind) { return kind == RegexKind::kOr || kind == RegexKind::kAnd; }

}  // namespace

RegexArena::RegexArena() {
  slots_.assign(64, kNothing);
  nodes_.push_back({.kind = RegexKind::kNone, .shortest = kNoLength});
  nodes_.push_back({.kind = RegexKind::kEmpty, .nullable = true});
  nodes_.push_back({.kind = RegexKind::kNot, .nullable = true, .boolean = false, .a = kNothing});
}

size_t RegexArena::memory_bytes() const {
  size_t bytes = nodes_.capacity() * sizeof(RegexNode) + children_.capacity() * sizeof(RegexId) +
                 byte_sets_.capacity() * sizeof(ByteSet) + literals_.capacity() +
                 slots_.capacity() * sizeof(RegexId) + memo_.capacity() * sizeof(Memo) +
                 live_.capacity();
  return bytes + class_bytes_;
}

uint64_t RegexArena::Hash(const RegexNode& node) const {
  uint64_t hash = Mix(kMultiplier, static_cast<uint64_t>(node.kind));
  if (HasSpan(node.kind)) {
    for (const RegexId child : children(node)) hash = Mix(hash, child);
    return hash;
  }
  if (node.kind == RegexKind::kLiteral) {
    for (const char c : literal(node)) hash = Mix(hash, static_cast<unsigned char>(c));
    return hash;
  }
  return Mix(Mix(hash, uint64_t{node.a} << 32 | node.b), node.c);
}

bool RegexArena::Same(const RegexNode& a, const RegexNode& b) const {
  if (a.kind != b.kind) return false;
  if (HasSpan(a.kind)) {
    return a.b == b.b && std::ranges::equal(children(a), children(b));
  }
  if (a.kind == RegexKind::kLiteral) return literal(a) == literal(b);
  return a.a == b.a && a.b == b.b && a.c == b.c;
}

void RegexArena::Grow() {
  std::vector<RegexId> old(slots_.size() * 2, kNothing);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const RegexId id : old) {
    if (id == kNothing) continue;
    size_t slot = Hash(nodes_[id]) & mask;
    while (slots_[slot] != kNothing) slot = (slot + 1) & mask;
    slots_[slot] = id;
  }
}

uint16_t RegexArena::DepthOf(const RegexNode& node) const {
  const auto below = [this](RegexId id) { return static_cast<uint16_t>(nodes_[id].depth + 1); };
  switch (node.kind) {
    case RegexKind::kConcat:
      return std::max(below(node.a), nodes_[node.b].depth);
    case RegexKind::kNot:
    case RegexKind::kRepeat:
      return below(node.a);
    case RegexKind::kOr:
    case RegexKind::kAnd: {
      uint16_t depth = 1;
      for (const RegexId child : children(node)) depth = std::max(depth, below(child));
      return depth;
    }
    default:
      return 1;
  }
}

// See MinLength.
uint32_t RegexArena::ShortestOf(const RegexNode& node) const {
  if (node.nullable) return 0;
  switch (node.kind) {
    case RegexKind::kBytes:
    case RegexKind::kClass:
      return 1;
    case RegexKind::kLiteral:
      return node.b;
    case RegexKind::kConcat: {
      const uint64_t both = uint64_t{nodes_[node.a].shortest} + nodes_[node.b].shortest;
      return static_cast<uint32_t>(std::min<uint64_t>(both, kNoLength));
    }
    case RegexKind::kRepeat: {
      const uint64_t all = uint64_t{nodes_[node.a].shortest} * node.b;
      return static_cast<uint32_t>(std::min<uint64_t>(all, kNoLength));
    }
    case RegexKind::kOr: {
      uint32_t shortest = kNoLength;
      for (const RegexId child : children(node)) {
        shortest = std::min(shortest, nodes_[child].shortest);
      }
      return shortest;
    }
    default:
      return kNoLength;
  }
}

RegexId RegexArena::Intern(const RegexNode& node) {
  const size_t mask = slots_.size() - 1;
  size_t slot = Hash(node) & mask;
  for (; slots_[slot] != kNothing; slot = (slot + 1) & mask) {
    if (Same(nodes_[slots_[slot]], node)) return slots_[slot];
  }
  const uint16_t depth = DepthOf(node);
  if (nodes_.size() * 40 > max_bytes_ || depth > kMaxDepth) {
    overflowed_ = true;
    return kNothing;
  }
  const auto id = static_cast<RegexId>(nodes_.size());
  nodes_.push_back(node);
  nodes_.back().depth = depth;
  nodes_.back().shortest = ShortestOf(node);
  slots_[slot] = id;
  if (nodes_.size() * 3 > slots_.size() * 2) Grow();
  return id;
}

RegexId RegexArena::InternSpan(RegexNode node, const std::vector<RegexId>& children) {
  node.a = static_cast<uint32_t>(children_.size());
  node.b = static_cast<uint32_t>(children.size());
  children_.insert(children_.end(), children.begin(), children.end());
  if (children_.size() * sizeof(RegexId) > max_bytes_) overflowed_ = true;
  const size_t before = nodes_.size();
  const RegexId id = Intern(node);
  if (nodes_.size() == before) children_.resize(node.a);
  return id;
}

RegexId RegexArena::InternLiteral(std::string_view bytes) {
  // `bytes` may lie in literals_ itself.
  RegexNode node{.kind = RegexKind::kLiteral};
  node.b = static_cast<uint32_t>(bytes.size());
  const char* begin = literals_.data();
  if (bytes.data() >= begin && bytes.data() + bytes.size() <= begin + literals_.size()) {
    node.a = static_cast<uint32_t>(bytes.data() - begin);
    return Intern(node);
  }
  node.a = static_cast<uint32_t>(literals_.size());
  literals_.append(bytes);
  const size_t before = nodes_.size();
  const RegexId id = Intern(node);
  if (nodes_.size() == before) literals_.resize(node.a);
  return id;
}

RegexId RegexArena::Byte(uint8_t byte) {
  const char c = static_cast<char>(byte);
  return InternLiteral(std::string_view(&c, 1));
}

RegexId RegexArena::Bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  if (set.size() == 1) return Byte(set.First());
  const auto found = std::find(byte_sets_.begin(), byte_sets_.end(), set);
  const auto number = static_cast<uint32_t>(found - byte_sets_.begin());
  if (found == byte_sets_.end()) byte_sets_.push_back(set);
  return Intern({.kind = RegexKind::kBytes, .a = number});
}

RegexId RegexArena::Literal(std::string_view bytes) {
  return bytes.empty() ? kEmptyText : InternLiteral(bytes);
}

RegexId RegexArena::Class(const CodePointSet& code_points, Spelling spelling) {
  if (code_points.empty()) return kNothing;
  uint64_t hash = Mix(kMultiplier, static_cast<uint64_t>(spelling));
  for (const CodePointRange& range : code_points.ranges()) {
    hash = Mix(hash, uint64_t{range.first} << 32 | range.last);
  }
  for (const uint32_t number : class_numbers_[hash]) {
    if (classes_[number].spelling == spelling && classes_[number].code_points == code_points) {
      return Intern({.kind = RegexKind::kClass, .a = number});
    }
  }
  if (class_bytes_ > max_bytes_ || WorkTime() > deadline_) {
    overflowed_ = true;
    return kNothing;
  }
  const RegexId bytes = BytesOfClass(code_points, spelling);
  RegexClass made{code_points, spelling, bytes};
  GroupDerivatives(made);
  class_bytes_ += BytesOf(made);
  const auto number = static_cast<uint32_t>(classes_.size());
  classes_.push_back(std::move(made));
  class_numbers_[hash].push_back(number);
  return Intern({.kind = RegexKind::kClass, .a = number});
}

RegexId RegexArena::Tag(uint32_t tag) {
  return Intern({.kind = RegexKind::kTag, .accepts = true, .has_tag = true, .a = tag});
}

RegexId RegexArena::Concat(RegexId a, RegexId b) {
  std::vector<RegexId> spine;
  while (nodes_[a].kind == RegexKind::kConcat) {
    spine.push_back(nodes_[a].a);
    a = nodes_[a].b;
  }
  spine.push_back(a);
  for (; !spine.empty(); spine.pop_back()) {
    const RegexId head = spine.back();
    if (head == kNothing || b == kNothing) return kNothing;
    if (head == kEmptyText) continue;
    if (b == kEmptyText) {
      b = head;
      continue;
    }
    const RegexNode& x = nodes_[head];
    const RegexNode& y = nodes_[b];
    b = Intern({.kind = RegexKind::kConcat,
                .nullable = x.nullable && y.nullable,
                .accepts = x.nullable && y.accepts,
                .has_tag = x.has_tag || y.has_tag,
                .boolean = x.boolean || y.boolean,
                .a = head,
                .b = b});
  }
  return b;
}

// Opens nested nodes of `kind`, sorts and removes repetitions.  Whether kAnything is among them.
bool RegexArena::Flatten(RegexKind kind, std::vector<RegexId>& children) const {
  std::vector<RegexId> flat;
  flat.reserve(children.size());
  for (const RegexId id : children) {
    const RegexNode& node = nodes_[id];
    if (node.kind == kind) {
      const auto inner = this->children(node);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(id);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  children = std::move(flat);
  return std::binary_search(children.begin(), children.end(), kAnything);
}

bool RegexArena::IsOneByte(RegexId id, ByteSet* set) const {
  const RegexNode& node = nodes_[id];
  if (node.kind == RegexKind::kBytes) {
    *set = byte_sets_[node.a];
    return true;
  }
  if (node.kind == RegexKind::kLiteral && node.b == 1) {
    *set = ByteSet();
    set->Add(static_cast<uint8_t>(literals_[node.a]));
    return true;
  }
  return false;
}

// [a]x | [b]x = [ab]x
void RegexArena::MergeBytes(std::vector<RegexId>& children) {
  struct Part {
    RegexId tail;
    ByteSet set;
  };
  std::vector<Part> parts;
  std::vector<RegexId> rest;
  for (const RegexId id : children) {
    ByteSet set;
    if (IsOneByte(Head(id), &set)) {
      parts.push_back({Tail(id), set});
    } else {
      rest.push_back(id);
    }
  }
  if (parts.size() < 2) return;
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& x, const Part& y) { return x.tail < y.tail; });
  for (size_t i = 0; i < parts.size();) {
    ByteSet all;
    const RegexId tail = parts[i].tail;
    for (; i < parts.size() && parts[i].tail == tail; ++i) all = all | parts[i].set;
    rest.push_back(Concat(Bytes(all), tail));
  }
  children = std::move(rest);
}

// ab | ac = a(b|c)
void RegexArena::FactorHeads(std::vector<RegexId>& children) {
  std::stable_sort(children.begin(), children.end(),
                   [this](RegexId x, RegexId y) { return Head(x) < Head(y); });
  bool shared = false;
  for (size_t i = 1; i < children.size(); ++i) {
    shared = shared || Head(children[i]) == Head(children[i - 1]);
  }
  if (!shared) return;
  std::vector<RegexId> factored;
  for (size_t i = 0; i < children.size();) {
    const RegexId head = Head(children[i]);
    std::vector<RegexId> tails;
    const size_t begin = i;
    for (; i < children.size() && Head(children[i]) == head; ++i) {
      tails.push_back(Tail(children[i]));
    }
    factored.push_back(i - begin == 1 ? children[begin] : Concat(head, Or(std::move(tails))));
  }
  children = std::move(factored);
}

RegexId RegexArena::Or(std::vector<RegexId> children) {
  if (children.size() == 2) {
    if (children[0] == children[1] || children[1] == kNothing) return children[0];
    if (children[0] == kNothing) return children[1];
  }
  if (Flatten(RegexKind::kOr, children)) {
    // Tags stay: they say more than the text.
    std::erase_if(children, [this](RegexId id) { return id != kAnything && !nodes_[id].has_tag; });
  }
  std::erase(children, kNothing);
  if (children.size() > 1) {
    MergeBytes(children);
    FactorHeads(children);
    Flatten(RegexKind::kOr, children);
  }
  std::erase(children, kNothing);
  if (children.empty()) return kNothing;
  if (children.size() == 1) return children[0];
  RegexNode node{.kind = RegexKind::kOr};
  bool nullable_child = false;
  for (const RegexId id : children) {
    const RegexNode& child = nodes_[id];
    node.accepts = node.accepts || child.accepts;
    node.has_tag = node.has_tag || child.has_tag;
    node.boolean = node.boolean || child.boolean;
    node.nullable = node.nullable || child.nullable;
    nullable_child = nullable_child || (child.nullable && id != kEmptyText);
  }
  if (nullable_child && std::erase(children, kEmptyText) > 0 && children.size() == 1) {
    return children[0];
  }
  return InternSpan(node, children);
}

bool RegexArena::IntersectRepeats(std::vector<RegexId>& children) {
  const auto repeat = [this](RegexId id, RegexNode* out) {
    const RegexNode& node = nodes_[id];
    if (node.kind == RegexKind::kClass) {
      *out = {.a = node.a, .b = 1, .c = 1};
      return true;
    }
    if (node.kind != RegexKind::kRepeat || nodes_[node.a].kind != RegexKind::kClass) return false;
    *out = {.a = nodes_[node.a].a, .b = node.b, .c = node.c};
    return true;
  };
  for (size_t i = 0; i < children.size(); ++i) {
    RegexNode x;
    if (!repeat(children[i], &x)) continue;
    for (size_t j = i + 1; j < children.size(); ++j) {
      RegexNode y;
      if (!repeat(children[j], &y)) continue;
      const RegexClass& p = classes_[x.a];
      const RegexClass& q = classes_[y.a];
      if ((p.spelling == Spelling::kPlain) != (q.spelling == Spelling::kPlain)) continue;
      const Spelling spelling = p.spelling == q.spelling ? p.spelling : Spelling::kJson;
      const RegexId both = Class(p.code_points.Intersection(q.code_points), spelling);
      const uint32_t min = std::max(x.b, y.b);
      const uint32_t max = std::min(x.c, y.c);
      const RegexId merged = max < min ? kNothing : Repeat(both, min, max);
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(j));
      children[i] = merged;
      return true;
    }
  }
  return false;
}

RegexId RegexArena::And(std::vector<RegexId> children) {
  do {
    Flatten(RegexKind::kAnd, children);
    std::erase(children, kAnything);
  } while (IntersectRepeats(children));
  if (children.empty()) return kAnything;
  if (children.size() == 1) return children[0];
  if (children.front() == kNothing) return kNothing;
  if (std::binary_search(children.begin(), children.end(), kEmptyText)) {
    const bool nullable =
        std::ranges::all_of(children, [&](RegexId id) { return nodes_[id].nullable; });
    return nullable ? kEmptyText : kNothing;
  }
  RegexNode node{.kind = RegexKind::kAnd, .nullable = true, .boolean = true};
  for (const RegexId id : children) {
    TANDEM_CHECK(!nodes_[id].has_tag);
    node.nullable = node.nullable && nodes_[id].nullable;
    if (nodes_[id].kind == RegexKind::kNot &&
        std::binary_search(children.begin(), children.end(), nodes_[id].a)) {
      return kNothing;
    }
  }
  return InternSpan(node, children);
}

RegexId RegexArena::Not(RegexId a) {
  const RegexNode& node = nodes_[a];
  TANDEM_CHECK(!node.has_tag);
  if (a == kNothing) return kAnything;
  if (node.kind == RegexKind::kNot) return node.a;
  return Intern({.kind = RegexKind::kNot, .nullable = !node.nullable, .boolean = true, .a = a});
}

RegexId RegexArena::Repeat(RegexId a, uint32_t min, uint32_t max) {
  if (max == 0 || a == kEmptyText) return kEmptyText;
  if (a == kNothing) return min == 0 ? kEmptyText : kNothing;
  if (min == 1 && max == 1) return a;
  const RegexNode& node = nodes_[a];
  TANDEM_CHECK(!node.has_tag);
  if (node.nullable) min = 0;
  // (x*){2,} = x*, (x+)* = x*, (x+){2,} = x{2,}
  if (node.kind == RegexKind::kRepeat && node.b <= 1 && node.c == kUnlimited && max == kUnlimited) {
    return Repeat(node.a, min * node.b, kUnlimited);
  }
  return Intern({.kind = RegexKind::kRepeat,
                 .nullable = min == 0,
                 .boolean = node.boolean,
                 .a = a,
                 .b = min,
                 .c = max});
}

RegexId RegexArena::NonEmpty(RegexId a) { return nodes_[a].nullable ? And(a, Not(kEmptyText)) : a; }

RegexId RegexArena::LiteralTree(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& x, const Entry& y) {
    return x.text != y.text ? x.text < y.text : x.after < y.after;
  });
  return entries.empty() ? kNothing : Tree(entries, 0);
}

RegexId RegexArena::Tree(std::span<const Entry> entries, size_t depth) {
  if (entries.size() == 1) {
    return Concat(Literal(std::string_view(entries[0].text).substr(depth)), entries[0].after);
  }
  // Sorted: what the first and the last share, all share.
  const std::string& first = entries.front().text;
  const std::string& last = entries.back().text;
  size_t shared = depth;
  while (shared < first.size() && shared < last.size() && first[shared] == last[shared]) ++shared;
  const RegexId branches = TreeBranches(entries, shared);
  return Concat(Literal(std::string_view(first).substr(depth, shared - depth)), branches);
}

RegexId RegexArena::TreeBranches(std::span<const Entry> entries, size_t depth) {
  std::vector<RegexId> branches;
  for (size_t i = 0; i < entries.size();) {
    if (entries[i].text.size() == depth) {
      branches.push_back(entries[i++].after);
      continue;
    }
    const size_t begin = i;
    const char byte = entries[i].text[depth];
    while (i < entries.size() && entries[i].text[depth] == byte) ++i;
    branches.push_back(Tree(entries.subspan(begin, i - begin), depth));
  }
  return Or(std::move(branches));
}

}  // namespace tandem::gateway::constraint
