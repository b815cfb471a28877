#include "services/gateway/constraint/grammar/lark.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"
#include "services/gateway/constraint/grammar/lark_terminals.h"
#include "services/gateway/constraint/grammar/source_reader.h"
#include "services/gateway/constraint/regex/regex_arena.h"
#include "services/gateway/constraint/regex/regex_builder.h"
#include "services/gateway/constraint/regex/unicode_classes.h"

namespace tandem::gateway::constraint {
namespace {

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLarkNameChar(char c) { return IsLower(c) || IsUpper(c) || IsDigit(c) || c == '_'; }

// A terminal's name begins with a capital, underscores aside.
bool IsTerminalName(std::string_view name) {
  const size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && IsUpper(name[first]);
}

class LarkParser {
 public:
  LarkParser(std::string_view text, absl::Time deadline) : in_("Lark", text), rules_(source_) {
    source_.pool.set_deadline(deadline);
  }

  absl::StatusOr<GrammarSource> Parse() {
    if (const auto bad = FindInvalidUtf8(in_.text())) return in_.ErrorAt(*bad, "not UTF-8");
    // Names in a grammar do not begin with '%' or '^'.
    ignore_ = rules_.Use("%ignore", 0);
    for (SkipLines(); in_.More(); SkipLines()) {
      if (in_.Peek() == '%') {
        TANDEM_RETURN_IF_ERROR(ParseDirective());
      } else {
        TANDEM_RETURN_IF_ERROR(ParseDefinition());
      }
      SkipSpace();
      if (in_.More() && !AtLineEnd()) return in_.Error("a new line is expected");
    }
    const uint32_t start = rules_.Use("start", 0);
    if (!rules_.IsDefined(start)) return in_.Error("no rule is named start");
    ExpressionPool& pool = source_.pool;
    rules_.Define(ignore_, pool.Repeat(pool.Alternatives(ignored_), 0, kUnlimited));
    source_.root = rules_.Use("^", 0);
    rules_.Define(source_.root, pool.Sequence({pool.Rule(ignore_), pool.Rule(start)}));
    TANDEM_RETURN_IF_ERROR(rules_.CheckAllDefined(in_));
    return std::move(source_);
  }

 private:
  bool AtLineEnd() const { return in_.Peek() == '\n' || in_.Peek() == '\r'; }
  void SkipSpace() {
    for (;;) {
      in_.TakeWhile([](char c) { return c == ' ' || c == '\t'; });
      if (!in_.StartsWith("//") && in_.Peek() != '#') return;
      in_.TakeWhile([](char c) { return c != '\n' && c != '\r'; });
    }
  }
  void SkipLines() {
    for (SkipSpace(); in_.More() && AtLineEnd(); SkipSpace()) in_.Next();
  }

  absl::Status ParseDirective() {
    const size_t start = in_.at();
    in_.Next();
    const std::string_view name = in_.TakeWhile(IsLarkNameChar);
    SkipSpace();
    if (name == "ignore") {
      in_terminal_ = true;
      TANDEM_ASSIGN_OR_RETURN(const ExpressionId ignored, ParseAlternatives(0));
      ignored_.push_back(ignored);
      return absl::OkStatus();
    }
    if (name == "import") return ParseImport(start);
    return in_.ErrorAt(start, absl::StrFormat("%%%s is not supported; %%ignore and %%import are",
                                              ClientText(name)));
  }

  // %import common.WS, %import common.WS -> SPACE, %import common (WS, INT)
  absl::Status ParseImport(size_t start) {
    const std::string_view library = in_.TakeWhile(IsLarkNameChar);
    if (library != "common") {
      return in_.ErrorAt(start, "%import is supported for the terminals of common alone");
    }
    SkipSpace();
    if (in_.Take("(")) {
      do {
        SkipSpace();
        const std::string_view name = in_.TakeWhile(IsLarkNameChar);
        TANDEM_RETURN_IF_ERROR(Import(name, name, start));
        SkipSpace();
      } while (in_.Take(","));
      if (!in_.Take(")")) return in_.Error("')' is expected");
      return absl::OkStatus();
    }
    if (!in_.Take(".")) return in_.Error("'.' is expected");
    const std::string_view name = in_.TakeWhile(IsLarkNameChar);
    std::string_view alias = name;
    SkipSpace();
    if (in_.Take("->")) {
      SkipSpace();
      alias = in_.TakeWhile(IsLarkNameChar);
    }
    return Import(name, alias, start);
  }

  absl::Status Import(std::string_view name, std::string_view alias, size_t start) {
    const auto pattern = CommonLarkTerminal(name);
    if (!pattern || alias.empty()) {
      return in_.ErrorAt(start, absl::StrFormat("common has no terminal %s", ClientText(name)));
    }
    TANDEM_ASSIGN_OR_RETURN(const ExpressionId body, Regex(*pattern, {}, start));
    return Define(alias, body, start);
  }

  absl::Status Define(std::string_view name, ExpressionId body, size_t start) {
    if (rules_.Define(rules_.Use(name, start), body)) return absl::OkStatus();
    return in_.ErrorAt(start, absl::StrFormat("%s is given twice", name));
  }

  absl::Status ParseDefinition() {
    const size_t start = in_.at();
    // Marks that shape Lark's tree say nothing of the text.
    in_.TakeWhile([](char c) { return c == '?' || c == '!'; });
    const std::string_view name = in_.TakeWhile(IsLarkNameChar);
    if (name.empty()) return in_.Error("a rule's name is expected");
    if (in_.Take(".")) {
      in_.Take("-");
      if (in_.TakeWhile(IsDigit).empty()) return in_.Error("a priority is expected");
    }
    SkipSpace();
    if (in_.Peek() == '{') return in_.Error("templates are not supported");
    if (!in_.Take(":")) return in_.Error("':' is expected");
    in_terminal_ = IsTerminalName(name);
    TANDEM_ASSIGN_OR_RETURN(const ExpressionId body, ParseAlternatives(0));
    return Define(name, body, start);
  }

  // Whether '|' follows, on this line or a further one.
  bool TakeBar() {
    SkipSpace();
    const size_t here = in_.at();
    SkipLines();
    if (in_.Take("|")) return true;
    in_.Seek(here);
    return false;
  }

  absl::StatusOr<ExpressionId> ParseAlternatives(int depth) {
    if (depth > kMaxGrammarDepth) return in_.Error("nested deeper than 200");
    std::vector<ExpressionId> alternatives;
    // A first bar may stand on a line of its own.
    TakeBar();
    do {
      TANDEM_ASSIGN_OR_RETURN(const ExpressionId sequence, ParseSequence(depth));
      alternatives.push_back(sequence);
      TANDEM_RETURN_IF_ERROR(source_.pool.status());
      if (in_.Take("->")) {
        SkipSpace();
        if (in_.TakeWhile(IsLarkNameChar).empty()) return in_.Error("an alias is expected");
      }
    } while (TakeBar());
    return source_.pool.Alternatives(std::move(alternatives));
  }

  absl::StatusOr<ExpressionId> ParseSequence(int depth) {
    std::vector<ExpressionId> items;
    for (;;) {
      if (depth > 0) {
        SkipLines();
      } else {
        SkipSpace();
      }
      const char c = in_.Peek();
      if (!in_.More() || AtLineEnd() || c == '|' || c == ')' || c == ']') break;
      if (in_.StartsWith("->")) break;
      TANDEM_ASSIGN_OR_RETURN(ExpressionId item, ParseItem(depth));
      TANDEM_ASSIGN_OR_RETURN(item, ParseRepeats(item));
      TANDEM_RETURN_IF_ERROR(source_.pool.status());
      items.push_back(item);
    }
    return source_.pool.Sequence(std::move(items));
  }

  // A terminal within a rule: ignored text may follow it.
  ExpressionId Terminal(ExpressionId id) {
    if (in_terminal_) return id;
    return source_.pool.Sequence({id, source_.pool.Rule(ignore_)});
  }

  absl::StatusOr<ExpressionId> ParseItem(int depth) {
    const size_t start = in_.at();
    const char c = in_.Peek();
    if (c == '"') return ParseString();
    if (c == '/') return ParseRegexItem();
    if (c == '(' || c == '[') {
      in_.Next();
      TANDEM_ASSIGN_OR_RETURN(const ExpressionId inner, ParseAlternatives(depth + 1));
      SkipLines();
      if (!in_.Take(c == '(' ? ")" : "]")) {
        return in_.ErrorAt(start, absl::StrFormat("'%c' without its end", c));
      }
      return c == '(' ? inner : source_.pool.Repeat(inner, 0, 1);
    }
    if (c == '<' || c == '%') return in_.Error("tokens (<...>) and %json are not supported");
    in_.Take("!");
    const std::string_view name = in_.TakeWhile(IsLarkNameChar);
    if (name.empty()) return in_.Error("a string, a regular expression, a name or '(' is expected");
    if (in_.Peek() == '{') return in_.Error("templates are not supported");
    const bool terminal = IsTerminalName(name);
    if (in_terminal_ && !terminal) {
      return in_.ErrorAt(start, absl::StrFormat("a terminal cannot use the rule %s", name));
    }
    const ExpressionId used = source_.pool.Rule(rules_.Use(name, start));
    return terminal ? Terminal(used) : used;
  }

  absl::StatusOr<ExpressionId> ParseRepeats(ExpressionId item) {
    ExpressionPool& pool = source_.pool;
    for (;;) {
      SkipSpace();
      const size_t start = in_.at();
      if (in_.Take("*")) {
        item = pool.Repeat(item, 0, kUnlimited);
      } else if (in_.Take("+")) {
        item = pool.Repeat(item, 1, kUnlimited);
      } else if (in_.Peek() == '?') {
        in_.Next();
        item = pool.Repeat(item, 0, 1);
      } else if (in_.Take("~")) {
        TANDEM_ASSIGN_OR_RETURN(const uint32_t min, ParseCount());
        uint32_t max = min;
        if (in_.Take("..")) {
          TANDEM_ASSIGN_OR_RETURN(max, ParseCount());
        }
        if (max < min) return in_.ErrorAt(start, "a repeat whose maximum is below its minimum");
        item = pool.Repeat(item, min, max);
      } else {
        return item;
      }
    }
  }

  absl::StatusOr<uint32_t> ParseCount() {
    SkipSpace();
    const size_t start = in_.at();
    const std::string_view digits = in_.TakeWhile(IsDigit);
    if (digits.empty()) return in_.Error("a number is expected");
    uint32_t value = 0;
    for (const char c : digits) {
      value = value * 10 + static_cast<uint32_t>(c - '0');
      if (value > kMaxGrammarRepeat) return in_.ErrorAt(start, "a repeat above 1000000");
    }
    SkipSpace();
    return value;
  }

  // "text", "text"i, "a".."z"
  absl::StatusOr<ExpressionId> ParseString() {
    const size_t start = in_.at();
    TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> text, ParseQuoted());
    ExpressionPool& pool = source_.pool;
    if (in_.Take("..")) {
      if (in_.Peek() != '"') return in_.Error("a string is expected");
      TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> last, ParseQuoted());
      if (text.size() != 1 || last.size() != 1 || text[0] > last[0]) {
        return in_.ErrorAt(start, "a range needs two characters, the lower one first");
      }
      return Terminal(pool.CodePoints(CodePointSet{{text[0], last[0]}}));
    }
    if (in_.Take("i")) {
      std::vector<ExpressionId> items;
      for (const uint32_t c : text) items.push_back(pool.CodePoints(FoldCase(CodePointSet::Of(c))));
      return Terminal(pool.Sequence(std::move(items)));
    }
    std::string bytes;
    for (const uint32_t c : text) bytes += Utf8Of(c);
    return Terminal(pool.Literal(std::move(bytes)));
  }

  absl::StatusOr<std::vector<uint32_t>> ParseQuoted() {
    const size_t start = in_.at();
    in_.Next();
    std::vector<uint32_t> text;
    while (!in_.Take("\"")) {
      if (!in_.More() || AtLineEnd()) return in_.ErrorAt(start, "a string without an end");
      TANDEM_ASSIGN_OR_RETURN(const uint32_t c, ParseCharacter());
      text.push_back(c);
    }
    return text;
  }

  absl::StatusOr<uint32_t> ParseCharacter() {
    const size_t start = in_.at();
    if (!in_.Take("\\")) return in_.TakeCodePoint();
    if (!in_.More()) return in_.ErrorAt(start, "a backslash at the end");
    switch (in_.Next()) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case '\\':
        return '\\';
      case '"':
        return '"';
      case '\'':
        return '\'';
      case '/':
        return '/';
      case 'x':
        return ParseHex(start, 2);
      case 'u':
        return ParseHex(start, 4);
      case 'U':
        return ParseHex(start, 8);
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

  // /pattern/flags
  absl::StatusOr<ExpressionId> ParseRegexItem() {
    const size_t start = in_.at();
    in_.Next();
    const size_t begin = in_.at();
    while (in_.More() && !AtLineEnd() && in_.Peek() != '/') {
      if (in_.Next() == '\\' && in_.More()) in_.Next();
    }
    const std::string_view pattern = in_.text().substr(begin, in_.at() - begin);
    if (!in_.Take("/")) return in_.ErrorAt(start, "a regular expression without an end");
    RegexOptions options;
    const std::string_view flags = in_.TakeWhile(IsLower);
    for (const char flag : flags) {
      options.ignore_case = options.ignore_case || flag == 'i';
      options.dot_matches_newline = options.dot_matches_newline || flag == 's';
      // Unicode is what there is; multi-line anchors are refused by themselves.
      if (flag != 'i' && flag != 's' && flag != 'u') {
        return in_.ErrorAt(start, absl::StrFormat("the flag %c is not supported", flag));
      }
    }
    TANDEM_ASSIGN_OR_RETURN(const ExpressionId regex, Regex(pattern, options, start));
    return Terminal(regex);
  }

  absl::StatusOr<ExpressionId> Regex(std::string_view pattern, RegexOptions options, size_t start) {
    options.ecma = true;  // \/ is a slash
    auto parsed = ParseRegex(pattern, options, source_.pool);
    TANDEM_RETURN_IF_ERROR(source_.pool.status());
    if (parsed.ok()) parsed = ResolveAnchors(*parsed, false, source_.pool);
    if (!parsed.ok()) return in_.ErrorAt(start, std::string(parsed.status().message()));
    return parsed;
  }

  SourceReader in_;
  GrammarSource source_;
  RuleTable rules_;
  std::vector<ExpressionId> ignored_;
  uint32_t ignore_ = 0;
  bool in_terminal_ = false;  // terminals have nothing ignored within
};

}  // namespace

absl::StatusOr<GrammarSource> ParseLark(std::string_view text, absl::Time deadline) {
  return LarkParser(text, deadline).Parse();
}

}  // namespace tandem::gateway::constraint
