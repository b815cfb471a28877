// The intermediate form of regular expressions and grammars: a tree over code points, literal bytes
// and references to rules.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/gateway/constraint/regex/code_point_set.h"

namespace tandem::gateway::constraint {

using ExpressionId = uint32_t;
inline constexpr uint32_t kUnlimited = UINT32_MAX;

enum class ExpressionKind : uint8_t {
  kEmpty,         // the empty text
  kNever,         // no text
  kCodePoints,    // one code point of `code_points`
  kLiteral,       // the bytes of `literal`
  kSequence,      // all of `children`, one after the other
  kAlternatives,  // one of `children`
  kRepeat,        // children[0], `min` to `max` times; max may be kUnlimited
  kRule,          // rule number `rule` of the grammar
  kBegin,         // the text's beginning (regular expressions alone)
  kEnd,           // the text's end (regular expressions alone)
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kEmpty;
  uint32_t min = 0;
  uint32_t max = 0;
  uint32_t rule = 0;
  uint32_t depth = 1;  // of the tree from here on
  std::vector<ExpressionId> children;
  CodePointSet code_points;
  std::string literal;
};

// Owns the nodes of one source.  A child is made before its parent, so ids are in topological
// order.  Beyond its bounds every new node is kNever, and status() says why: what parses a source
// looks at it again and again.
class ExpressionPool {
 public:
  static constexpr uint32_t kMaxDepth = 1000;  // functions that walk the tree call themselves
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  void set_deadline(absl::Time deadline) { deadline_ = deadline; }
  // INVALID_ARGUMENT: nested too deeply.  RESOURCE_EXHAUSTED: too large, or past the deadline.
  // CANCELLED: nobody waits.
  const absl::Status& status() const { return status_; }

  ExpressionId Empty() { return Add({.kind = ExpressionKind::kEmpty}); }
  ExpressionId Never() { return Add({.kind = ExpressionKind::kNever}); }
  ExpressionId Begin() { return Add({.kind = ExpressionKind::kBegin}); }
  ExpressionId End() { return Add({.kind = ExpressionKind::kEnd}); }
  ExpressionId CodePoints(CodePointSet set) {
    if (set.empty()) return Never();
    return Add({.kind = ExpressionKind::kCodePoints, .code_points = std::move(set)});
  }
  ExpressionId Literal(std::string bytes) {
    if (bytes.empty()) return Empty();
    return Add({.kind = ExpressionKind::kLiteral, .literal = std::move(bytes)});
  }
  ExpressionId Rule(uint32_t rule) { return Add({.kind = ExpressionKind::kRule, .rule = rule}); }
  ExpressionId Sequence(std::vector<ExpressionId> children) {
    if (children.empty()) return Empty();
    if (children.size() == 1) return children[0];
    return Add({.kind = ExpressionKind::kSequence, .children = std::move(children)});
  }
  ExpressionId Alternatives(std::vector<ExpressionId> children) {
    if (children.empty()) return Never();
    if (children.size() == 1) return children[0];
    return Add({.kind = ExpressionKind::kAlternatives, .children = std::move(children)});
  }
  ExpressionId Repeat(ExpressionId child, uint32_t min, uint32_t max) {
    if (max == 0) return Empty();
    if (min == 1 && max == 1) return child;
    return Add({.kind = ExpressionKind::kRepeat, .min = min, .max = max, .children = {child}});
  }

  const Expression& operator[](ExpressionId id) const { return nodes_[id]; }
  size_t size() const { return nodes_.size(); }

 private:
  ExpressionId Add(Expression node);

  std::vector<Expression> nodes_;
  size_t bytes_ = 0;
  absl::Time deadline_ = absl::InfiniteFuture();
  absl::Status status_;
};

}  // namespace tandem::gateway::constraint
