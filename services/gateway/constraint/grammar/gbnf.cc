#include "services/gateway/constraint/grammar/gbnf.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"
#include "services/gateway/constraint/grammar/source_reader.h"
#include "services/gateway/constraint/regex/regex_arena.h"

namespace tandem::gateway::constraint {
namespace {

bool IsRuleNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
 public:
  GbnfParser(std::string_view text, absl::Time deadline) : in_("GBNF", text), rules_(source_) {
    source_.pool.set_deadline(deadline);
  }

  absl::StatusOr<GrammarSource> Parse() {
    if (const auto bad = FindInvalidUtf8(in_.text())) return in_.ErrorAt(*bad, "not UTF-8");
    SkipSpace(true);
    while (in_.More()) {
      TANDEM_RETURN_IF_ERROR(ParseRule());
      SkipSpace(true);
    }
    source_.root = rules_.Use("root", 0);
    if (!rules_.IsDefined(source_.root)) return in_.Error("no rule is named root");
    TANDEM_RETURN_IF_ERROR(rules_.CheckAllDefined(in_));
    return std::move(source_);
  }

 private:
  void SkipSpace(bool lines) {
    while (in_.More()) {
      const char c = in_.Peek();
      if (c == '#') {
        in_.TakeWhile([](char d) { return d != '\n' && d != '\r'; });
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        in_.Next();
      } else {
        return;
      }
    }
  }

  absl::Status ParseRule() {
    const size_t start = in_.at();
    const std::string_view name = in_.TakeWhile(IsRuleNameChar);
    if (name.empty()) return in_.Error("a rule's name is expected");
    SkipSpace(false);
    if (!in_.Take("::=")) return in_.Error("::= is expected");
    SkipSpace(true);
    TANDEM_ASSIGN_OR_RETURN(const ExpressionId body, ParseAlternatives(0));
    if (in_.More() && in_.Peek() != '\n' && in_.Peek() != '\r') {
      return in_.Error("a new line is expected");
    }
    if (!rules_.Define(rules_.Use(name, start), body)) {
      return in_.ErrorAt(start, absl::StrFormat("rule %s is given twice", name));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ExpressionId> ParseAlternatives(int depth) {
    if (depth > kMaxGrammarDepth) return in_.Error("nested deeper than 200");
    std::vector<ExpressionId> alternatives;
    do {
      SkipSpace(true);
      TANDEM_ASSIGN_OR_RETURN(const ExpressionId sequence, ParseSequence(depth));
      alternatives.push_back(sequence);
      TANDEM_RETURN_IF_ERROR(source_.pool.status());
    } while (in_.Take("|"));
    return source_.pool.Alternatives(std::move(alternatives));
  }

  absl::StatusOr<ExpressionId> ParseSequence(int depth) {
    std::vector<ExpressionId> items;
    while (in_.More()) {
      const char c = in_.Peek();
      if (c == '|' || c == ')' || c == '\n' || c == '\r') break;
      TANDEM_ASSIGN_OR_RETURN(ExpressionId item, ParseItem(depth));
      TANDEM_ASSIGN_OR_RETURN(item, ParseRepeats(item));
      TANDEM_RETURN_IF_ERROR(source_.pool.status());
      items.push_back(item);
      SkipSpace(depth > 0);
    }
    return source_.pool.Sequence(std::move(items));
  }

  absl::StatusOr<ExpressionId> ParseItem(int depth) {
    const char c = in_.Peek();
    if (c == '"') return ParseLiteral();
    if (c == '[') return ParseClass();
    if (c == '.') {
      in_.Next();
      return source_.pool.CodePoints(CodePointSet::All());
    }
    if (c == '(') {
      const size_t start = in_.at();
      in_.Next();
      TANDEM_ASSIGN_OR_RETURN(const ExpressionId inner, ParseAlternatives(depth + 1));
      if (!in_.Take(")")) return in_.ErrorAt(start, "'(' without ')'");
      return inner;
    }
    if (c == '<' || c == '!')
      return in_.Error("tokens (<...>) are not supported: write their text");
    if (!IsRuleNameChar(c)) return in_.Error("a literal, a class, a rule or '(' is expected");
    const size_t start = in_.at();
    return source_.pool.Rule(rules_.Use(in_.TakeWhile(IsRuleNameChar), start));
  }

  absl::StatusOr<ExpressionId> ParseRepeats(ExpressionId item) {
    for (;;) {
      if (in_.Take("*")) {
        item = source_.pool.Repeat(item, 0, kUnlimited);
      } else if (in_.Take("+")) {
        item = source_.pool.Repeat(item, 1, kUnlimited);
      } else if (in_.Take("?")) {
        item = source_.pool.Repeat(item, 0, 1);
      } else if (in_.Peek() == '{') {
        const size_t start = in_.at();
        in_.Next();
        SkipSpace(false);
        TANDEM_ASSIGN_OR_RETURN(const uint32_t min, ParseCount());
        uint32_t max = min;
        if (in_.Take(",")) {
          SkipSpace(false);
          max = kUnlimited;
          if (in_.Peek() != '}') {
            TANDEM_ASSIGN_OR_RETURN(max, ParseCount());
          }
        }
        if (!in_.Take("}")) return in_.Error("'}' is expected");
        if (max < min) return in_.ErrorAt(start, "a repeat whose maximum is below its minimum");
        item = source_.pool.Repeat(item, min, max);
      } else {
        return item;
      }
    }
  }

  absl::StatusOr<uint32_t> ParseCount() {
    const size_t start = in_.at();
    const std::string_view digits = in_.TakeWhile([](char c) { return c >= '0' && c <= '9'; });
    uint32_t value = 0;
    for (const char c : digits) {
      value = value * 10 + static_cast<uint32_t>(c - '0');
      if (value > kMaxGrammarRepeat) return in_.ErrorAt(start, "a repeat above 1000000");
    }
    if (digits.empty()) return in_.Error("a number is expected");
    SkipSpace(false);
    return value;
  }

  absl::StatusOr<ExpressionId> ParseLiteral() {
    const size_t start = in_.at();
    in_.Next();
    std::string bytes;
    while (!in_.Take("\"")) {
      if (!in_.More()) return in_.ErrorAt(start, "a literal without an end");
      TANDEM_ASSIGN_OR_RETURN(const uint32_t c, ParseCharacter());
      bytes += Utf8Of(c);
    }
    return source_.pool.Literal(std::move(bytes));
  }

  absl::StatusOr<ExpressionId> ParseClass() {
    const size_t start = in_.at();
    in_.Next();
    const bool negated = in_.Take("^");
    std::vector<CodePointRange> ranges;
    while (!in_.Take("]")) {
      if (!in_.More()) return in_.ErrorAt(start, "'[' without ']'");
      TANDEM_ASSIGN_OR_RETURN(const uint32_t first, ParseCharacter());
      uint32_t last = first;
      if (in_.Peek() == '-' && in_.Peek(1) != ']') {
        in_.Next();
        if (!in_.More()) return in_.ErrorAt(start, "'[' without ']'");
        TANDEM_ASSIGN_OR_RETURN(last, ParseCharacter());
      }
      if (last < first) return in_.Error("a range whose end is before its start");
      ranges.push_back({first, last});
    }
    CodePointSet set(std::move(ranges));
    return source_.pool.CodePoints(negated ? set.Complement() : std::move(set));
  }

  // One character of a literal or a class, escapes read.
  absl::StatusOr<uint32_t> ParseCharacter() {
    const size_t start = in_.at();
    if (!in_.Take("\\")) return in_.TakeCodePoint();
    if (!in_.More()) return in_.ErrorAt(start, "a backslash at the end");
    switch (in_.Next()) {
      case 'x':
        return ParseHex(start, 2);
      case 'u':
        return ParseHex(start, 4);
      case 'U':
        return ParseHex(start, 8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
        return '\\';
      case '"':
        return '"';
      case '[':
        return '[';
      case ']':
        return ']';
      case '-':
        return '-';
      case '^':
        return '^';
      case '/':
        return '/';
      default:
        return in_.ErrorAt(start, "an unknown escape");
    }
  }

  absl::StatusOr<uint32_t> ParseHex(size_t start, int digits) {
    const auto value = in_.TakeHex(digits);
    if (!value || *value > kMaxCodePoint || (*value >= 0xD800 && *value < 0xE000)) {
      return in_.ErrorAt(start, "an escape that is no character");
    }
    return *value;
  }

  SourceReader in_;
  GrammarSource source_;
  RuleTable rules_;
};

}  // namespace

absl::StatusOr<GrammarSource> ParseGbnf(std::string_view text, absl::Time deadline) {
  return GbnfParser(text, deadline).Parse();
}

}  // namespace tandem::gateway::constraint
