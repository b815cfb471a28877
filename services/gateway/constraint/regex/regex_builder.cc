#include "services/gateway/constraint/regex/regex_builder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "services/common/base/status_macros.h"

namespace tandem::gateway::constraint {
namespace {

constexpr size_t kMaxNodes = 200'000;

// Removes one kind of anchor.  With kBegin it reads sequences from the left, with kEnd from the
// right: "first" below is the end of a sequence at which the anchor holds.
//
// An anchor holds until a code point is consumed.  So a sequence ab is
//   AtEdge(ab) = Zero(a) AtEdge(b) | Consuming(a) Inside(b)
// with Inside, in which the anchor never holds, Zero, the part of a that consumes nothing, and
// Consuming, the rest of a.
class AnchorResolver {
 public:
  AnchorResolver(ExpressionKind anchor, ExpressionPool& pool) : anchor_(anchor), pool_(pool) {}

  absl::StatusOr<ExpressionId> Resolve(ExpressionId id) {
    const ExpressionId resolved = AtEdge(id);
    if (too_large_)
      return absl::InvalidArgumentError("regular expression: its anchors make it too large");
    return resolved;
  }

 private:
  bool Has(ExpressionId id) {
    for (size_t next = has_.size(); next <= id; ++next) {
      const Expression& node = pool_[static_cast<ExpressionId>(next)];
      bool has = node.kind == anchor_;
      for (const ExpressionId child : node.children) has = has || has_[child];
      has_.push_back(has);
    }
    return has_[id];
  }
  bool Full() {
    too_large_ = too_large_ || pool_.size() > kMaxNodes;
    return too_large_;
  }
  bool IsNever(ExpressionId id) const { return pool_[id].kind == ExpressionKind::kNever; }

  // The parts of a sequence in reading order.
  std::vector<ExpressionId> Parts(ExpressionId id) const {
    std::vector<ExpressionId> parts = pool_[id].children;
    if (anchor_ == ExpressionKind::kEnd) std::reverse(parts.begin(), parts.end());
    return parts;
  }
  ExpressionId Join(std::vector<ExpressionId> parts) {
    for (const ExpressionId part : parts) {
      if (IsNever(part)) return pool_.Never();
    }
    std::erase_if(parts,
                  [this](ExpressionId part) { return pool_[part].kind == ExpressionKind::kEmpty; });
    if (anchor_ == ExpressionKind::kEnd) std::reverse(parts.begin(), parts.end());
    return pool_.Sequence(std::move(parts));
  }
  ExpressionId Either(std::vector<ExpressionId> parts) {
    std::erase_if(parts, [this](ExpressionId part) { return IsNever(part); });
    return pool_.Alternatives(std::move(parts));
  }
  template <typename Transform>
  ExpressionId EachAlternative(ExpressionId id, Transform transform) {
    std::vector<ExpressionId> parts = pool_[id].children;
    for (ExpressionId& part : parts) part = transform(part);
    return Either(std::move(parts));
  }

  ExpressionId AtEdge(ExpressionId id) {
    if (Full() || !Has(id)) return id;
    switch (pool_[id].kind) {
      case ExpressionKind::kSequence: {
        const std::vector<ExpressionId> parts = Parts(id);
        return SequenceAtEdge(parts, 0);
      }
      case ExpressionKind::kAlternatives:
        return EachAlternative(id, [this](ExpressionId part) { return AtEdge(part); });
      case ExpressionKind::kRepeat:
        return Either({Zero(id), Consuming(id)});
      default:
        return pool_.Empty();  // the anchor itself
    }
  }

  ExpressionId SequenceAtEdge(const std::vector<ExpressionId>& parts, size_t first) {
    std::vector<ExpressionId> either;
    std::vector<ExpressionId> zero;  // of all parts before `i`
    for (size_t i = first; i < parts.size() && !Full(); ++i) {
      const bool later = std::any_of(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                     parts.end(), [this](ExpressionId part) { return Has(part); });
      std::vector<ExpressionId> whole = zero;
      whole.push_back(later ? Consuming(parts[i]) : AtEdge(parts[i]));
      for (size_t j = i + 1; j < parts.size(); ++j) whole.push_back(Inside(parts[j]));
      either.push_back(Join(std::move(whole)));
      if (!later) return Either(std::move(either));
      zero.push_back(Zero(parts[i]));
      if (IsNever(zero.back())) return Either(std::move(either));
    }
    either.push_back(Join(std::move(zero)));
    return Either(std::move(either));
  }

  ExpressionId Inside(ExpressionId id) {
    if (Full() || !Has(id)) return id;
    const Expression node = pool_[id];
    switch (node.kind) {
      case ExpressionKind::kSequence: {
        std::vector<ExpressionId> parts = Parts(id);
        for (ExpressionId& part : parts) part = Inside(part);
        return Join(std::move(parts));
      }
      case ExpressionKind::kAlternatives:
        return EachAlternative(id, [this](ExpressionId part) { return Inside(part); });
      case ExpressionKind::kRepeat: {
        const ExpressionId child = Inside(node.children[0]);
        if (IsNever(child)) return node.min == 0 ? pool_.Empty() : child;
        return pool_.Repeat(child, node.min, node.max);
      }
      default:
        return pool_.Never();
    }
  }

  // The rest of the other anchor stays in it.
  ExpressionId Zero(ExpressionId id) {
    if (Full()) return id;
    const Expression node = pool_[id];
    switch (node.kind) {
      case ExpressionKind::kSequence: {
        std::vector<ExpressionId> parts = Parts(id);
        for (ExpressionId& part : parts) part = Zero(part);
        return Join(std::move(parts));
      }
      case ExpressionKind::kAlternatives:
        return EachAlternative(id, [this](ExpressionId part) { return Zero(part); });
      case ExpressionKind::kRepeat:
        return node.min == 0 ? pool_.Empty() : Zero(node.children[0]);
      case ExpressionKind::kEmpty:
        return id;
      case ExpressionKind::kBegin:
      case ExpressionKind::kEnd:
        return node.kind == anchor_ ? pool_.Empty() : id;
      default:
        return pool_.Never();
    }
  }

  // Whether the empty text is in it, whatever anchors hold.
  bool CanBeEmpty(ExpressionId id) const {
    const Expression& node = pool_[id];
    const auto child = [this](ExpressionId c) { return CanBeEmpty(c); };
    switch (node.kind) {
      case ExpressionKind::kEmpty:
        return true;
      case ExpressionKind::kSequence:
        return std::ranges::all_of(node.children, child);
      case ExpressionKind::kAlternatives:
        return std::ranges::any_of(node.children, child);
      case ExpressionKind::kRepeat:
        return node.min == 0 || child(node.children[0]);
      default:
        return false;
    }
  }

  ExpressionId Consuming(ExpressionId id) {
    if (Full()) return id;
    const Expression node = pool_[id];
    switch (node.kind) {
      case ExpressionKind::kSequence: {
        const std::vector<ExpressionId> parts = Parts(id);
        std::vector<ExpressionId> either;
        std::vector<ExpressionId> zero;
        for (size_t i = 0; i < parts.size(); ++i) {
          std::vector<ExpressionId> whole = zero;
          whole.push_back(Consuming(parts[i]));
          for (size_t j = i + 1; j < parts.size(); ++j) whole.push_back(Inside(parts[j]));
          either.push_back(Join(std::move(whole)));
          zero.push_back(Zero(parts[i]));
          if (IsNever(zero.back())) break;
        }
        return Either(std::move(either));
      }
      case ExpressionKind::kAlternatives:
        return EachAlternative(id, [this](ExpressionId part) { return Consuming(part); });
      case ExpressionKind::kRepeat: {
        const ExpressionId child = node.children[0];
        // The other anchor never holds before something is consumed.
        const bool skips = CanBeEmpty(Zero(child));
        const uint32_t min = skips || node.min == 0 ? 0 : node.min - 1;
        const uint32_t max = node.max == kUnlimited ? kUnlimited : node.max - 1;
        const ExpressionId inside = Inside(child);
        ExpressionId rest = pool_.Empty();
        if (!IsNever(inside)) {
          rest = pool_.Repeat(inside, min, max);
        } else if (min > 0) {
          return inside;
        }
        return Join({Consuming(child), rest});
      }
      case ExpressionKind::kCodePoints:
      case ExpressionKind::kLiteral:
        return id;
      default:
        return pool_.Never();
    }
  }

  const ExpressionKind anchor_;
  ExpressionPool& pool_;
  std::vector<bool> has_;
  bool too_large_ = false;
};

class RegexBuilder {
 public:
  RegexBuilder(const ExpressionPool& pool, Spelling spelling,
               const std::function<RegexId(uint32_t)>& rule, RegexArena& arena)
      : pool_(pool), spelling_(spelling), rule_(rule), arena_(arena) {}

  RegexId Build(ExpressionId id) {
    const Expression& node = pool_[id];
    std::string literal;
    if (AsLiteral(id, &literal)) return arena_.Literal(literal);
    switch (node.kind) {
      case ExpressionKind::kEmpty:
        return kEmptyText;
      case ExpressionKind::kCodePoints:
        return arena_.Class(node.code_points, spelling_);
      case ExpressionKind::kSequence:
        return Sequence(node.children);
      case ExpressionKind::kAlternatives: {
        std::vector<RegexId> parts;
        std::vector<RegexArena::Entry> literals;
        for (const ExpressionId child : node.children) {
          std::string text;
          if (AsLiteral(child, &text)) {
            literals.push_back({std::move(text)});
          } else {
            parts.push_back(Build(child));
          }
        }
        parts.push_back(arena_.LiteralTree(std::move(literals)));
        return arena_.Or(std::move(parts));
      }
      case ExpressionKind::kRepeat:
        return arena_.Repeat(Build(node.children[0]), node.min, node.max);
      case ExpressionKind::kRule:
        return rule_(node.rule);
      default:
        return kNothing;
    }
  }

 private:
  // Appends the bytes of an expression of one text.
  bool AsLiteral(ExpressionId id, std::string* out) const {
    const Expression& node = pool_[id];
    std::string text;
    if (node.kind == ExpressionKind::kLiteral) {
      text = node.literal;
    } else if (node.kind == ExpressionKind::kCodePoints && node.code_points.size() == 1) {
      text = Utf8Of(node.code_points.ranges()[0].first);
    } else if (node.kind == ExpressionKind::kSequence) {
      std::string all;
      for (const ExpressionId child : node.children) {
        if (!AsLiteral(child, &all)) return false;
      }
      *out += all;
      return true;
    } else {
      return false;
    }
    *out += spelling_ == Spelling::kPlain ? text : JsonEscaped(text);
    return true;
  }

  RegexId Sequence(const std::vector<ExpressionId>& children) {
    RegexId all = kEmptyText;
    std::vector<std::string> texts;  // neighbours that are literals, the last first
    const auto add_literal = [&] {
      std::string literal;
      for (; !texts.empty(); texts.pop_back()) literal += texts.back();
      all = arena_.Concat(arena_.Literal(literal), all);
    };
    for (size_t i = children.size(); i-- > 0 && !arena_.overflowed();) {
      std::string text;
      if (AsLiteral(children[i], &text)) {
        texts.push_back(std::move(text));
        continue;
      }
      add_literal();
      all = arena_.Concat(Build(children[i]), all);
    }
    add_literal();
    return all;
  }

  const ExpressionPool& pool_;
  const Spelling spelling_;
  const std::function<RegexId(uint32_t)>& rule_;
  RegexArena& arena_;
};

}  // namespace

namespace {

// Shortens `id`, before (`end`: after) which any text may stand: of a repeat there its least number
// is enough.  [a-z]+ within a text is [a-z] within a text.
ExpressionId TrimEdge(ExpressionId id, bool end, ExpressionPool& pool) {
  const Expression node = pool[id];
  switch (node.kind) {
    case ExpressionKind::kRepeat:
      return node.min == node.max ? id : pool.Repeat(node.children[0], node.min, node.min);
    case ExpressionKind::kAlternatives: {
      std::vector<ExpressionId> parts = node.children;
      for (ExpressionId& part : parts) part = TrimEdge(part, end, pool);
      return parts == node.children ? id : pool.Alternatives(std::move(parts));
    }
    case ExpressionKind::kSequence: {
      std::vector<ExpressionId> parts = node.children;
      while (!parts.empty()) {
        const auto edge = end ? parts.end() - 1 : parts.begin();
        *edge = TrimEdge(*edge, end, pool);
        if (pool[*edge].kind != ExpressionKind::kEmpty) break;
        parts.erase(edge);
      }
      return parts == node.children ? id : pool.Sequence(std::move(parts));
    }
    default:
      return id;
  }
}

}  // namespace

absl::StatusOr<ExpressionId> ResolveAnchors(ExpressionId expression, bool search,
                                            ExpressionPool& pool) {
  if (search) {
    const ExpressionId any = pool.Repeat(pool.CodePoints(CodePointSet::All()), 0, kUnlimited);
    expression = TrimEdge(TrimEdge(expression, true, pool), false, pool);
    expression = pool.Sequence({any, expression, any});
  }
  TANDEM_ASSIGN_OR_RETURN(expression,
                          AnchorResolver(ExpressionKind::kBegin, pool).Resolve(expression));
  return AnchorResolver(ExpressionKind::kEnd, pool).Resolve(expression);
}

RegexId BuildRegex(const ExpressionPool& pool, ExpressionId expression, Spelling spelling,
                   const std::function<RegexId(uint32_t)>& rule, RegexArena& arena) {
  return RegexBuilder(pool, spelling, rule, arena).Build(expression);
}

namespace {

// What a pattern looks ahead for at its beginning: "(?=PATTERN)", or "(?!PATTERN)" if not `wanted`.
struct LookAhead {
  std::string_view pattern;
  bool wanted = false;
};

// The byte behind the ')' of the group at `open`, or of the first '|' outside of groups from there on
// if `open` is no group; npos where there is none.
size_t FindEnd(std::string_view pattern, size_t open, bool group) {
  int depth = 0;
  bool in_class = false;
  for (size_t i = open; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')') {
      if (--depth == 0 && group) return i + 1;
    } else if (c == '|' && depth == 0 && !group) {
      return i;
    }
  }
  return std::string_view::npos;
}

// Takes the look-aheads behind the '^' that the pattern begins with.  None where another alternative
// would go without them.
std::vector<LookAhead> TakeLookAheads(std::string_view pattern, std::string& rest) {
  std::vector<LookAhead> found;
  size_t at = 1;
  while (pattern.starts_with('^') &&
         (pattern.substr(at).starts_with("(?=") || pattern.substr(at).starts_with("(?!"))) {
    const size_t end = FindEnd(pattern, at, /*group=*/true);
    if (end == std::string_view::npos) return {};
    found.push_back({pattern.substr(at + 3, end - at - 4), pattern[at + 2] == '='});
    at = end;
  }
  if (found.empty() || FindEnd(pattern, at, /*group=*/false) != std::string_view::npos) return {};
  rest = "^" + std::string(pattern.substr(at));
  return found;
}

}  // namespace

absl::StatusOr<RegexId> CompilePattern(std::string_view pattern, const RegexOptions& options,
                                       bool search, Spelling spelling, RegexArena& arena) {
  std::string rest;
  if (const std::vector<LookAhead> ahead = TakeLookAheads(pattern, rest); !ahead.empty()) {
    std::vector<RegexId> all(1);
    TANDEM_ASSIGN_OR_RETURN(all[0], CompilePattern(rest, options, search, spelling, arena));
    for (const LookAhead& look : ahead) {
      const std::string begins = "^(?:" + std::string(look.pattern) + ")";
      TANDEM_ASSIGN_OR_RETURN(const RegexId with,
                              CompilePattern(begins, options, /*search=*/true, spelling, arena));
      all.push_back(look.wanted ? with : arena.Not(with));
    }
    return arena.And(std::move(all));
  }
  ExpressionPool pool;
  pool.set_deadline(arena.deadline());
  TANDEM_ASSIGN_OR_RETURN(const ExpressionId parsed, ParseRegex(pattern, options, pool));
  TANDEM_ASSIGN_OR_RETURN(const ExpressionId resolved, ResolveAnchors(parsed, search, pool));
  TANDEM_RETURN_IF_ERROR(pool.status());
  return BuildRegex(
      pool, resolved, spelling, [](uint32_t) { return kNothing; }, arena);
}

}  // namespace tandem::gateway::constraint
