// Regular languages of bytes as a hash-consed graph, with Brzozowski's derivatives as its
// automaton.
//
// The derivative of a language L by a byte b is { w | bw in L }.  Nodes are the automaton's states,
// a derivative is a step.  Equal nodes are one node, so states recur and are kept in tables.
// Counted repeats derive to a repeat of one less: {1000000} costs only the repeats walked.
// Source: Owens, Reppy, Turon, "Regular-expression derivatives re-examined" (2009).
//
// A tag marks where a terminal ends: the node Concat(terminal, Tag(t)) says, once the terminal is
// complete, that it was t.  One node so follows many terminals at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "services/gateway/constraint/regex/byte_set.h"
#include "services/gateway/constraint/regex/code_point_set.h"

namespace tandem::gateway::constraint {

using RegexId = uint32_t;
inline constexpr RegexId kNothing = 0;    // no text
inline constexpr RegexId kEmptyText = 1;  // the empty text alone
inline constexpr RegexId kAnything = 2;   // every text

// How a text's code points are spelt in the output.
enum class Spelling : uint8_t {
  kPlain,    // UTF-8
  kJson,     // within a JSON string, each code point in one way: escaped only where it must be
  kJsonAny,  // within a JSON string, with every escape that JSON allows
};

enum class RegexKind : uint8_t {
  kNone,
  kEmpty,
  kBytes,
  kLiteral,
  kClass,
  kConcat,
  kOr,
  kAnd,
  kNot,
  kRepeat,
  kTag,
};

struct RegexNode {
  RegexKind kind = RegexKind::kNone;
  bool nullable = false;  // the empty text is in it; tags do not count
  bool accepts = false;   // a tag is reached by the empty text
  bool has_tag = false;
  bool boolean = false;  // has kAnd or kNot below: may be empty without being kNothing
  // Of the graph from here on; along a chain of kConcat only what stands in it counts.
  uint16_t depth = 1;
  uint32_t shortest = 0;  // RegexArena::MinLength
  // kBytes: a set's number.  kLiteral: offset, length.  kClass: the class's number.  kConcat: two
  // nodes.  kOr, kAnd: offset and number of children.  kNot: a node.  kRepeat: node, min, max.
  // kTag: the tag.
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
};

// A code point of a set in one spelling.  `bytes` is its language over bytes.
struct RegexClass {
  CodePointSet code_points;
  Spelling spelling = Spelling::kPlain;
  RegexId bytes = kNothing;
  // The derivatives of `bytes`, by groups of bytes that have the same one.
  struct Group {
    RegexId derivative = kNothing;
    ByteSet bytes;
  };
  std::vector<Group> groups;
  std::array<uint8_t, 256> group_of = {};
};

// Single-thread.  A copy is an arena of its own with the same ids.
class RegexArena {
 public:
  RegexArena();

  RegexId Bytes(const ByteSet& set);
  RegexId Byte(uint8_t byte);
  RegexId Literal(std::string_view bytes);
  RegexId Class(const CodePointSet& code_points, Spelling spelling);
  RegexId Concat(RegexId a, RegexId b);
  RegexId Or(std::vector<RegexId> children);
  RegexId Or(RegexId a, RegexId b) { return Or(std::vector<RegexId>{a, b}); }
  RegexId And(std::vector<RegexId> children);
  RegexId And(RegexId a, RegexId b) { return And(std::vector<RegexId>{a, b}); }
  RegexId Not(RegexId a);
  RegexId Repeat(RegexId a, uint32_t min, uint32_t max);
  RegexId Optional(RegexId a) { return Or(kEmptyText, a); }
  RegexId Tag(uint32_t tag);
  // One of `texts`, each followed by its node of `after`; a tree by common prefixes.  Texts that
  // occur twice are followed by either.
  struct Entry {
    std::string text;
    RegexId after = kEmptyText;
  };
  RegexId LiteralTree(std::vector<Entry> entries);
  // `a` without the empty text.
  RegexId NonEmpty(RegexId a);

  // The derivative by `byte`, without branches that no text completes.  `alike` becomes a set of
  // bytes with the same derivative, `byte` in it.
  RegexId Derive(RegexId id, uint8_t byte, ByteSet* alike);
  RegexId Derive(RegexId id, uint8_t byte) {
    ByteSet alike;
    return Derive(id, byte, &alike);
  }
  // Whether some text is in it.  Exact for nodes without And and Not; for others it looks at up to
  // `max_states` derivatives and says yes when they do not suffice.
  bool IsLive(RegexId id, size_t max_states = 2000);
  // Appends the tags that the empty text reaches.
  void AcceptedTags(RegexId id, std::vector<uint32_t>& tags) const;
  // Whether only tags are left: no byte can follow.
  bool OnlyTags(RegexId id) const;
  // Adds the classes, at most `most`, by whose code points a text of it may begin.
  void LeadingClasses(RegexId id, size_t most, std::vector<uint32_t>& classes) const;
  // Bytes that occur anywhere in it; all where it has And, Not or is deeply nested.
  ByteSet Alphabet(RegexId id) const;
  // Length of the longest text; kNoLength where there is no limit (or none that is found cheaply).
  static constexpr uint32_t kNoLength = UINT32_MAX;
  uint32_t MaxLength(RegexId id) const {
    int visits = 0;
    return MaxLength(id, visits);
  }

  // Length of the shortest text in code points of classes and bytes of everything else; kNoLength
  // where it is not known: within And and Not.
  uint32_t MinLength(RegexId id) const { return nodes_[id].shortest; }
  // Whether the node is one code point of all, in any spelling.
  bool IsAnyCodePoint(RegexId id) const;

  const RegexNode& node(RegexId id) const { return nodes_[id]; }
  std::span<const RegexId> children(const RegexNode& node) const {
    return {children_.data() + node.a, node.b};
  }
  const ByteSet& byte_set(uint32_t number) const { return byte_sets_[number]; }
  std::string_view literal(const RegexNode& node) const {
    return std::string_view(literals_).substr(node.a, node.b);
  }
  const RegexClass& regex_class(uint32_t number) const { return classes_[number]; }
  size_t num_classes() const { return classes_.size(); }
  size_t size() const { return nodes_.size(); }
  // Heap bytes in use.
  size_t memory_bytes() const;
  // Above `max_bytes`, past the deadline and deeper than kMaxDepth every new node is kNothing and
  // overflowed() says so.  The deadline is for what makes classes: derivatives make none.
  static constexpr uint16_t kMaxDepth = 1000;  // functions that walk the graph call themselves
  void set_limit(size_t max_bytes) { max_bytes_ = max_bytes; }
  void set_deadline(absl::Time deadline) { deadline_ = deadline; }
  absl::Time deadline() const { return deadline_; }
  bool overflowed() const { return overflowed_; }
  // Nodes derived since the arena was made: a measure of work.
  uint64_t steps() const { return steps_; }

 private:
  RegexId Intern(const RegexNode& node);
  RegexId InternSpan(RegexNode node, const std::vector<RegexId>& children);
  RegexId InternLiteral(std::string_view bytes);
  uint64_t Hash(const RegexNode& node) const;
  uint16_t DepthOf(const RegexNode& node) const;
  uint32_t ShortestOf(const RegexNode& node) const;
  bool Same(const RegexNode& a, const RegexNode& b) const;
  void Grow();
  bool Flatten(RegexKind kind, std::vector<RegexId>& children) const;
  void FactorHeads(std::vector<RegexId>& children);
  void MergeBytes(std::vector<RegexId>& children);
  bool IsOneByte(RegexId id, ByteSet* set) const;
  // A node as a head and the rest; the head is the node where there is no rest.
  RegexId Head(RegexId id) const {
    return nodes_[id].kind == RegexKind::kConcat ? nodes_[id].a : id;
  }
  RegexId Tail(RegexId id) const {
    return nodes_[id].kind == RegexKind::kConcat ? nodes_[id].b : kEmptyText;
  }
  bool IntersectRepeats(std::vector<RegexId>& children);
  RegexId DeriveRaw(RegexId id, uint8_t byte, ByteSet* alike);
  bool ExploreIsLive(RegexId id, size_t max_states);
  uint32_t LeastToGo(RegexId id) const;
  bool FitsLength(const RegexNode& both) const;
  void GroupDerivatives(RegexClass& regex_class);
  RegexId DeriveNode(RegexId id, uint8_t byte, ByteSet* alike);
  bool BeginsOtherwise(RegexId id, uint8_t byte, ByteSet* alike) const;
  RegexId DeriveConcat(RegexId id, uint8_t byte, ByteSet* alike);
  RegexId Tree(std::span<const Entry> entries, size_t depth);
  RegexId TreeBranches(std::span<const Entry> entries, size_t depth);
  uint32_t MaxLength(RegexId id, int& visits) const;
  RegexId WithoutDead(RegexId id, size_t max_states);
  RegexId BytesOfClass(const CodePointSet& code_points, Spelling spelling);

  std::vector<RegexNode> nodes_;
  std::vector<RegexId> children_;
  std::vector<ByteSet> byte_sets_;
  std::vector<RegexClass> classes_;
  std::string literals_;
  std::vector<RegexId> slots_;  // open addressing over nodes_; kNothing is free

  // Sub-derivatives of the call to Derive under way.
  struct Memo {
    uint32_t call = 0;
    RegexId result = kNothing;
  };
  std::vector<Memo> memo_;
  uint32_t call_ = 0;
  uint64_t steps_ = 0;
  size_t max_bytes_ = SIZE_MAX;
  absl::Time deadline_ = absl::InfiniteFuture();
  absl::flat_hash_map<uint64_t, std::vector<uint32_t>> class_numbers_;  // by hash
  size_t class_bytes_ = 0;
  bool overflowed_ = false;

  // Known answers of IsLive for nodes with And or Not: 0 unknown, 1 live, 2 dead.
  std::vector<uint8_t> live_;
};

// The bytes of code points `set` in UTF-8.
RegexId Utf8Bytes(const CodePointSet& set, RegexArena& arena);
// `code_point` in UTF-8.
std::string Utf8Of(uint32_t code_point);
// `text`, which is UTF-8, as Spelling::kJson has it, without the quotes.
std::string JsonEscaped(std::string_view text);

}  // namespace tandem::gateway::constraint
