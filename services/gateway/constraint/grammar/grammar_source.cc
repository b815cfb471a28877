#include "services/gateway/constraint/grammar/grammar_source.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/strings/str_format.h"
#include "services/common/base/cancellation.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/regex/regex_builder.h"
#include "services/gateway/constraint/work_time.h"

namespace tandem::gateway::constraint {
namespace {

constexpr uint32_t kNoRule = UINT32_MAX;

// The rules that an expression names.
void CollectRules(const ExpressionPool& pool, ExpressionId id, std::vector<uint32_t>& rules) {
  std::vector<ExpressionId> left = {id};
  while (!left.empty()) {
    const Expression& node = pool[left.back()];
    left.pop_back();
    if (node.kind == ExpressionKind::kRule) rules.push_back(node.rule);
    left.insert(left.end(), node.children.begin(), node.children.end());
  }
}

class Lowering {
 public:
  Lowering(const GrammarSource& source, size_t max_bytes, absl::Time deadline)
      : source_(source), pool_(source.pool), max_bytes_(max_bytes), deadline_(deadline) {
    grammar_.regexes.set_limit(max_bytes);
    grammar_.regexes.set_deadline(deadline);
  }

  absl::StatusOr<Grammar> Run() {
    TANDEM_RETURN_IF_ERROR(pool_.status());
    calls_.resize(source_.bodies.size());
    for (size_t i = 0; i < calls_.size(); ++i) {
      CollectRules(pool_, source_.bodies[i], calls_[i]);
      std::sort(calls_[i].begin(), calls_[i].end());
      calls_[i].erase(std::unique(calls_[i].begin(), calls_[i].end()), calls_[i].end());
    }
    FindFixpoint(completes_, [this](ExpressionId id) { return Completes(id); });
    if (!completes_[source_.root]) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "grammar: rule %s never ends: it always needs itself", source_.names[source_.root]));
    }
    FindFixpoint(nullable_, [this](ExpressionId id) { return Nullable(id); });
    FindRegular();
    numbers_.assign(source_.bodies.size(), kNoRule);
    regexes_.assign(source_.bodies.size(), kNothing);
    for (const uint32_t rule : order_) {
      if (regular_[rule]) regexes_[rule] = Regex(source_.bodies[rule]);
      TANDEM_RETURN_IF_ERROR(CheckBudget());
    }
    for (const uint32_t rule : order_) {
      if (regular_[rule]) continue;
      numbers_[rule] = grammar_.parts.AddRule();
      if (nullable_[rule]) grammar_.parts.SetNullable(numbers_[rule]);
    }
    for (const uint32_t rule : order_) {
      if (regular_[rule]) continue;
      grammar_.parts.SetRule(numbers_[rule], Part(source_.bodies[rule]));
      TANDEM_RETURN_IF_ERROR(CheckBudget());
    }
    if (regular_[source_.root]) {
      grammar_.root = grammar_.parts.AddRule();
      const RegexId root = regexes_[source_.root];
      if (grammar_.regexes.node(root).nullable) grammar_.parts.SetNullable(grammar_.root);
      grammar_.parts.SetRule(grammar_.root, grammar_.parts.WholeText(root, grammar_.regexes));
    } else {
      grammar_.root = numbers_[source_.root];
    }
    TANDEM_RETURN_IF_ERROR(CheckBudget());
    grammar_.regexes.set_deadline(absl::InfiniteFuture());
    return std::move(grammar_);
  }

 private:
  bool Full() const {
    return grammar_.regexes.overflowed() || grammar_.parts.memory_bytes() > max_bytes_;
  }
  absl::Status CheckBudget() const {
    TANDEM_RETURN_IF_ERROR(CheckCancelled());
    if (!Full() && WorkTime() <= deadline_) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        "grammar: it takes more time or memory to compile than a grammar may");
  }

  // Sets flags of rules until none changes.
  void FindFixpoint(std::vector<bool>& flags, const std::function<bool(ExpressionId)>& holds) {
    const size_t count = source_.bodies.size();
    flags.assign(count, false);
    std::vector<std::vector<uint32_t>> callers(count);
    for (uint32_t rule = 0; rule < count; ++rule) {
      for (const uint32_t called : calls_[rule]) callers[called].push_back(rule);
    }
    std::vector<uint32_t> left(count);
    for (uint32_t rule = 0; rule < count; ++rule) left[rule] = rule;
    while (!left.empty()) {
      const uint32_t rule = left.back();
      left.pop_back();
      if (flags[rule] || !holds(source_.bodies[rule])) continue;
      flags[rule] = true;
      left.insert(left.end(), callers[rule].begin(), callers[rule].end());
    }
  }
  bool Completes(ExpressionId id) const {
    const Expression& node = pool_[id];
    const auto child = [this](ExpressionId c) { return Completes(c); };
    switch (node.kind) {
      case ExpressionKind::kNever:
        return false;
      case ExpressionKind::kSequence:
        return std::ranges::all_of(node.children, child);
      case ExpressionKind::kAlternatives:
        return std::ranges::any_of(node.children, child);
      case ExpressionKind::kRepeat:
        return node.min == 0 || child(node.children[0]);
      case ExpressionKind::kRule:
        return completes_[node.rule];
      default:
        return true;
    }
  }
  bool Nullable(ExpressionId id) const {
    const Expression& node = pool_[id];
    const auto child = [this](ExpressionId c) { return Nullable(c); };
    switch (node.kind) {
      case ExpressionKind::kEmpty:
        return true;
      case ExpressionKind::kSequence:
        return std::ranges::all_of(node.children, child);
      case ExpressionKind::kAlternatives:
        return std::ranges::any_of(node.children, child);
      case ExpressionKind::kRepeat:
        return node.min == 0 || child(node.children[0]);
      case ExpressionKind::kRule:
        return nullable_[node.rule];
      default:
        return false;
    }
  }

  // order_: the rules that the root reaches, each after those it calls where these are regular.
  // A rule is regular when it is in no cycle and all it calls are regular (Tarjan's components).
  void FindRegular() {
    const size_t count = source_.bodies.size();
    regular_.assign(count, false);
    std::vector<uint32_t> index(count, 0);
    std::vector<uint32_t> low(count, 0);
    std::vector<bool> on_stack(count, false);
    std::vector<uint32_t> stack;
    uint32_t next_index = 0;
    struct Frame {
      uint32_t rule;
      size_t next;
    };
    std::vector<Frame> frames;
    const auto enter = [&](uint32_t rule) {
      index[rule] = low[rule] = ++next_index;
      stack.push_back(rule);
      on_stack[rule] = true;
      frames.push_back({rule, 0});
    };
    enter(source_.root);
    while (!frames.empty()) {
      const uint32_t rule = frames.back().rule;
      if (frames.back().next < calls_[rule].size()) {
        const uint32_t called = calls_[rule][frames.back().next++];
        if (index[called] == 0) {
          enter(called);
        } else if (on_stack[called]) {
          low[rule] = std::min(low[rule], index[called]);
        }
        continue;
      }
      frames.pop_back();
      if (!frames.empty()) {
        low[frames.back().rule] = std::min(low[frames.back().rule], low[rule]);
      }
      if (low[rule] != index[rule]) continue;
      const bool alone = stack.back() == rule;
      const bool cycle = !alone || std::ranges::binary_search(calls_[rule], rule);
      regular_[rule] = !cycle && std::ranges::all_of(calls_[rule], [this](uint32_t called) {
        return regular_[called];
      });
      for (bool last = false; !last;) {
        const uint32_t member = stack.back();
        stack.pop_back();
        on_stack[member] = false;
        order_.push_back(member);
        last = member == rule;
      }
    }
  }

  bool IsRegular(ExpressionId id) const {
    const Expression& node = pool_[id];
    if (node.kind == ExpressionKind::kRule) return regular_[node.rule];
    return std::ranges::all_of(node.children, [this](ExpressionId c) { return IsRegular(c); });
  }
  RegexId Regex(ExpressionId id) {
    return BuildRegex(
        pool_, id, Spelling::kPlain,
        [this](uint32_t rule) { return completes_[rule] ? regexes_[rule] : kNothing; },
        grammar_.regexes);
  }

  PartId Part(ExpressionId id) {
    PartArena& parts = grammar_.parts;
    if (Full()) return kStuck;
    if (IsRegular(id)) return parts.Text(Regex(id), grammar_.regexes);
    const Expression& node = pool_[id];
    switch (node.kind) {
      case ExpressionKind::kRule:
        return completes_[node.rule] ? parts.Call(numbers_[node.rule]) : kStuck;
      case ExpressionKind::kRepeat:
        return parts.Repeat(Part(node.children[0]), node.min, node.max);
      case ExpressionKind::kAlternatives: {
        std::vector<PartId> choices;
        std::vector<RegexId> regular;
        for (const ExpressionId child : node.children) {
          if (IsRegular(child)) {
            regular.push_back(Regex(child));
          } else {
            choices.push_back(Part(child));
          }
        }
        choices.push_back(parts.Text(grammar_.regexes.Or(std::move(regular)), grammar_.regexes));
        return parts.Choice(std::move(choices));
      }
      default:
        break;
    }
    // A sequence: neighbours that are regular become one terminal.
    PartId all = kDone;
    RegexId run = kEmptyText;
    for (size_t i = node.children.size(); i-- > 0;) {
      const ExpressionId child = node.children[i];
      if (IsRegular(child)) {
        run = grammar_.regexes.Concat(Regex(child), run);
        continue;
      }
      all = parts.Sequence(parts.Text(run, grammar_.regexes), all);
      run = kEmptyText;
      all = parts.Sequence(Part(child), all);
    }
    return parts.Sequence(parts.Text(run, grammar_.regexes), all);
  }

  const GrammarSource& source_;
  const ExpressionPool& pool_;
  const size_t max_bytes_;
  const absl::Time deadline_;
  Grammar grammar_;
  std::vector<std::vector<uint32_t>> calls_;
  std::vector<bool> completes_;
  std::vector<bool> nullable_;
  std::vector<bool> regular_;
  std::vector<uint32_t> order_;
  std::vector<RuleId> numbers_;   // of rules that are not regular
  std::vector<RegexId> regexes_;  // of rules that are
};

}  // namespace

absl::StatusOr<Grammar> LowerGrammar(const GrammarSource& source, size_t max_bytes,
                                     absl::Time deadline) {
  return Lowering(source, max_bytes, deadline).Run();
}

}  // namespace tandem::gateway::constraint
