#include "services/gateway/constraint/regex/regex_parser.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"
#include "services/gateway/constraint/regex/regex_class_names.h"
#include "services/gateway/constraint/regex/unicode_classes.h"

namespace tandem::gateway::constraint {
namespace {

constexpr int kMaxDepth = 200;
constexpr uint32_t kMaxRepeat = 65536;

struct Flags {
  bool ignore_case = false;
  bool dot_all = false;
};

class RegexParser {
 public:
  RegexParser(std::string_view text, const RegexOptions& options, ExpressionPool& pool)
      : text_(text), ecma_(options.ecma), pool_(pool) {
    flags_ = {options.ignore_case, options.dot_matches_newline};
  }

  absl::StatusOr<ExpressionId> Parse() {
    if (const auto bad = FindInvalidUtf8(text_)) return Error("is not UTF-8", *bad);
    TANDEM_ASSIGN_OR_RETURN(const ExpressionId whole, ParseAlternatives(0));
    if (at_ < text_.size()) return Error("')' without '('", at_);
    return whole;
  }

 private:
  absl::Status Error(std::string_view what, size_t offset) const {
    return absl::InvalidArgumentError(
        absl::StrFormat("regular expression: %s at byte %d", what, offset));
  }
  bool More() const { return at_ < text_.size(); }
  char Peek() const { return text_[at_]; }
  bool Take(std::string_view literal) {
    if (!text_.substr(at_).starts_with(literal)) return false;
    at_ += literal.size();
    return true;
  }
  uint32_t TakeCodePoint() {
    const auto lead = static_cast<unsigned char>(text_[at_]);
    const size_t length = Utf8Length(lead);
    uint32_t value = length == 1 ? lead : lead & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; ++i) {
      value = value << 6 | (static_cast<unsigned char>(text_[at_ + i]) & 0x3F);
    }
    at_ += length;
    return value;
  }
  // The complement of a class.  Folds before it: (?i)\W has no k, although the Kelvin sign, which
  // is no word character, folds to k.
  CodePointSet NoneOf(const CodePointSet& set) const {
    return (flags_.ignore_case ? FoldCase(set) : set).Complement();
  }
  ExpressionId CodePoints(CodePointSet set) {
    return pool_.CodePoints(flags_.ignore_case ? FoldCase(set) : std::move(set));
  }

  absl::StatusOr<ExpressionId> ParseAlternatives(int depth) {
    if (depth > kMaxDepth) return Error("nested deeper than 200", at_);
    const Flags outer = flags_;
    std::vector<ExpressionId> alternatives;
    do {
      TANDEM_ASSIGN_OR_RETURN(const ExpressionId sequence, ParseSequence(depth));
      alternatives.push_back(sequence);
      TANDEM_RETURN_IF_ERROR(pool_.status());
    } while (Take("|"));
    flags_ = outer;
    return pool_.Alternatives(std::move(alternatives));
  }

  absl::StatusOr<ExpressionId> ParseSequence(int depth) {
    std::vector<ExpressionId> items;
    while (More() && Peek() != '|' && Peek() != ')') {
      TANDEM_ASSIGN_OR_RETURN(const std::optional<ExpressionId> item, ParseItem(depth));
      if (item) items.push_back(*item);
    }
    return pool_.Sequence(std::move(items));
  }

  // Nothing where the item only changes flags.
  absl::StatusOr<std::optional<ExpressionId>> ParseItem(int depth) {
    TANDEM_RETURN_IF_ERROR(pool_.status());
    TANDEM_ASSIGN_OR_RETURN(std::optional<ExpressionId> item, ParseAtom(depth));
    for (int repeats = 0;; ++repeats) {
      const size_t operator_at = at_;
      TANDEM_ASSIGN_OR_RETURN(const auto bounds, ParseBounds());
      if (!bounds) return item;
      if (!item) return Error("nothing to repeat", operator_at);
      if (repeats > 0) return Error("a repeat of a repeat", operator_at);
      const ExpressionKind kind = pool_[*item].kind;
      if (kind == ExpressionKind::kBegin || kind == ExpressionKind::kEnd) {
        // An anchor holds however often it is asked.
        if (bounds->first == 0) item = pool_.Empty();
      } else {
        item = pool_.Repeat(*item, bounds->first, bounds->second);
      }
    }
  }

  absl::StatusOr<std::optional<std::pair<uint32_t, uint32_t>>> ParseBounds() {
    std::optional<std::pair<uint32_t, uint32_t>> bounds;
    const size_t start = at_;
    if (Take("*")) {
      bounds = {0, kUnlimited};
    } else if (Take("+")) {
      bounds = {1, kUnlimited};
    } else if (Take("?")) {
      bounds = {0, 1};
    } else if (Take("{")) {
      const auto min = TakeNumber();
      auto max = min;
      if (min && Take(",")) {
        max = More() && Peek() != '}' ? TakeNumber() : std::optional<uint32_t>(kUnlimited);
      }
      if (!min || !max || !Take("}")) {
        at_ = start;  // RE2 and ECMA-262 read it as text
        return bounds;
      }
      if (*min > kMaxRepeat || (*max != kUnlimited && *max > kMaxRepeat)) {
        return Error("a repeat above 65536", start);
      }
      if (*max < *min) return Error("a repeat whose maximum is below its minimum", start);
      bounds = {*min, *max};
    }
    if (bounds) Take("?");
    return bounds;
  }

  // kMaxRepeat + 1 for anything above it.
  std::optional<uint32_t> TakeNumber() {
    const size_t start = at_;
    uint32_t value = 0;
    while (More() && Peek() >= '0' && Peek() <= '9') {
      value = std::min(value * 10 + static_cast<uint32_t>(Peek() - '0'), kMaxRepeat + 1);
      ++at_;
    }
    if (at_ == start) return std::nullopt;
    return value;
  }

  absl::StatusOr<std::optional<ExpressionId>> ParseAtom(int depth) {
    const size_t start = at_;
    switch (Peek()) {
      case '(':
        ++at_;
        return ParseGroup(depth, start);
      case '[':
        ++at_;
        return ParseClass(start);
      case '.':
        ++at_;
        return pool_.CodePoints(flags_.dot_all ? CodePointSet::All()
                                               : CodePointSet::Of('\n').Complement());
      case '^':
        ++at_;
        return pool_.Begin();
      case '$':
        ++at_;
        return pool_.End();
      case '*':
      case '+':
      case '?':
        return Error("nothing to repeat", start);
      case '\\':
        ++at_;
        return ParseEscape(start);
      default:
        return CodePoints(CodePointSet::Of(TakeCodePoint()));
    }
  }

  absl::StatusOr<std::optional<ExpressionId>> ParseGroup(int depth, size_t start) {
    const Flags outer = flags_;
    if (Take("?")) {
      if (Take("=") || Take("!") || Take("<=") || Take("<!")) {
        return Error("look-around is not supported", start);
      }
      if (Take("P<") || Take("<")) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos || end == at_) return Error("a bad group name", start);
        for (; at_ < end; ++at_) {
          const char c = Peek();
          const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                            (c >= '0' && c <= '9') || c == '_';
          if (!word) return Error("a bad group name", start);
        }
        ++at_;
      } else {
        TANDEM_ASSIGN_OR_RETURN(const bool group, ParseFlags(start));
        if (!group) return std::optional<ExpressionId>();
      }
    }
    TANDEM_ASSIGN_OR_RETURN(const ExpressionId inner, ParseAlternatives(depth + 1));
    if (!Take(")")) return Error("'(' without ')'", start);
    flags_ = outer;
    return inner;
  }

  // After "(?": whether ':' follows, and with it a group.
  absl::StatusOr<bool> ParseFlags(size_t start) {
    bool on = true;
    bool any = false;
    while (More()) {
      const char c = text_[at_++];
      if (c == ':') return true;
      if (c == ')') {
        if (!any) return Error("flags without a letter", start);
        return false;
      }
      if (c == '-' && on) {
        on = false;
        any = false;
        continue;
      }
      any = true;
      if (c == 'i') {
        flags_.ignore_case = on;
      } else if (c == 's') {
        flags_.dot_all = on;
      } else if (c == 'm' && on) {
        return Error("(?m) is not supported", start);
      } else if (c != 'U' && c != 'm') {
        return Error("an unknown flag", start);
      }
    }
    return Error("'(' without ')'", start);
  }

  // After the backslash, outside a class.
  absl::StatusOr<std::optional<ExpressionId>> ParseEscape(size_t start) {
    if (!More()) return Error("a backslash at the end", start);
    const char c = Peek();
    if (c == 'A') {
      ++at_;
      return pool_.Begin();
    }
    if (c == 'z') {
      ++at_;
      return pool_.End();
    }
    if (c == 'b' || c == 'B') return Error("\\b and \\B are not supported", start);
    if (c == 'C') return Error("\\C is not supported", start);
    if ((c >= '1' && c <= '9') || c == 'k') {
      return Error("back-references are not supported", start);
    }
    if (c == 'Q') {
      ++at_;
      const size_t end = std::min(text_.find("\\E", at_), text_.size());
      std::vector<ExpressionId> items;
      while (at_ < end) items.push_back(CodePoints(CodePointSet::Of(TakeCodePoint())));
      Take("\\E");
      // A repeat takes the last character alone.
      if (items.size() > 1 && More() &&
          std::string_view("*+?{").find(Peek()) != std::string_view::npos) {
        return Error("a repeat after \\Q...\\E", at_);
      }
      return pool_.Sequence(std::move(items));
    }
    TANDEM_ASSIGN_OR_RETURN(CodePointSet set, ParseEscapedSet(start, false));
    return CodePoints(std::move(set));
  }

  // After the backslash: one code point or a class.
  absl::StatusOr<CodePointSet> ParseEscapedSet(size_t start, bool in_class) {
    if (!More()) return Error("a backslash at the end", start);
    const uint32_t c = TakeCodePoint();
    if (c < 0x80) {
      if (const auto set = PerlClass(static_cast<char>(c), ecma_)) return *set;
      if (c >= 'A' && c <= 'Z') {
        if (const auto set = PerlClass(static_cast<char>(c | 32), ecma_)) return NoneOf(*set);
      }
    }
    switch (c) {
      case 'a':
        return CodePointSet::Of('\a');
      case 'f':
        return CodePointSet::Of('\f');
      case 'n':
        return CodePointSet::Of('\n');
      case 'r':
        return CodePointSet::Of('\r');
      case 't':
        return CodePointSet::Of('\t');
      case 'v':
        return CodePointSet::Of('\v');
      case 'x':
        return ParseHex(start);
      case 'p':
      case 'P':
        return ParseProperty(start, c == 'P');
      case '0':
        return ParseOctal();
      case 'b':
        if (in_class && ecma_) return CodePointSet::Of('\b');
        break;
      case 'c':
        if (ecma_ && More() && ((Peek() | 32) >= 'a' && (Peek() | 32) <= 'z')) {
          return CodePointSet::Of(static_cast<uint32_t>(text_[at_++]) & 31);
        }
        break;
      case 'u':
        if (ecma_) return ParseUtf16(start);
        break;
      default:
        break;
    }
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (word || c >= 0x80) return Error("an unknown escape", start);
    return CodePointSet::Of(c);
  }

  std::optional<uint32_t> TakeHex(size_t min_digits, size_t max_digits) {
    uint32_t value = 0;
    size_t digits = 0;
    while (digits < max_digits && More()) {
      const char c = Peek();
      const int digit = c >= '0' && c <= '9'                 ? c - '0'
                        : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                             : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<uint32_t>(digit);
      ++digits;
      ++at_;
    }
    if (digits < min_digits) return std::nullopt;
    return value;
  }

  absl::StatusOr<CodePointSet> ParseHex(size_t start) {
    std::optional<uint32_t> value;
    if (Take("{")) {
      value = TakeHex(1, 8);
      if (!Take("}")) value.reset();
    } else {
      value = TakeHex(2, 2);
    }
    if (!value || *value > kMaxCodePoint) return Error("a bad \\x escape", start);
    return CodePointSet::Of(*value);
  }

  absl::StatusOr<CodePointSet> ParseUtf16(size_t start) {
    if (Take("{")) {
      const auto value = TakeHex(1, 6);
      if (!value || *value > kMaxCodePoint || !Take("}")) return Error("a bad \\u escape", start);
      return CodePointSet::Of(*value);
    }
    const auto unit = TakeHex(4, 4);
    if (!unit) return Error("a bad \\u escape", start);
    if (*unit < 0xD800 || *unit > 0xDBFF) return CodePointSet::Of(*unit);
    const size_t after = at_;
    if (Take("\\u")) {
      const auto low = TakeHex(4, 4);
      if (low && *low >= 0xDC00 && *low <= 0xDFFF) {
        return CodePointSet::Of(0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00));
      }
    }
    at_ = after;
    return CodePointSet();
  }

  // RE2: \0 and up to two more octal digits.
  absl::StatusOr<CodePointSet> ParseOctal() {
    uint32_t value = 0;
    for (int i = 0; i < 2 && More() && Peek() >= '0' && Peek() <= '7'; ++i) {
      value = value * 8 + static_cast<uint32_t>(text_[at_++] - '0');
    }
    return CodePointSet::Of(value);
  }

  absl::StatusOr<CodePointSet> ParseProperty(size_t start, bool negated) {
    if (!More()) return Error("a bad \\p class", start);
    std::string_view name;
    if (Take("{")) {
      const size_t end = text_.find('}', at_);
      if (end == std::string_view::npos || end == at_) return Error("a bad \\p class", start);
      name = text_.substr(at_, end - at_);
      at_ = end + 1;
      if (name.starts_with("^")) {
        negated = !negated;
        name.remove_prefix(1);
      }
    } else {
      const size_t begin = at_;
      TakeCodePoint();
      name = text_.substr(begin, at_ - begin);
    }
    if (ecma_) name = EcmaPropertyName(name);
    for (const char c : name) {
      const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
      if (!word) return Error("an unknown \\p class", start);
    }
    const auto set = UnicodeClass(name);
    if (!set.ok()) return Error(absl::StrFormat("an unknown class \\p{%s}", name), start);
    return negated ? NoneOf(**set) : **set;
  }

  // After '['.
  absl::StatusOr<std::optional<ExpressionId>> ParseClass(size_t start) {
    const bool negated = Take("^");
    CodePointSet all;
    std::vector<CodePointRange> ranges;
    // RE2 reads a leading ']' as a member; ECMA-262 as the end of an empty class.
    for (bool first = true;
         first ? (!ecma_ || !More() || Peek() != ']') : (!More() || Peek() != ']'); first = false) {
      if (!More()) return Error("'[' without ']'", start);
      if (Take("[:")) {
        const size_t end = text_.find(":]", at_);
        const bool invert = More() && Peek() == '^';
        const auto name = end == std::string_view::npos
                              ? std::string_view()
                              : text_.substr(at_ + (invert ? 1 : 0), end - at_ - (invert ? 1 : 0));
        if (const auto set = PosixClass(name)) {
          all = all.Union(invert ? NoneOf(*set) : *set);
          at_ = end + 2;
          continue;
        }
        if (!ecma_) return Error("an unknown [:class:]", at_ - 2);
        at_ -= 1;
        ranges.push_back({'[', '['});
        continue;
      }
      TANDEM_ASSIGN_OR_RETURN(CodePointSet low, ParseMember());
      const bool range =
          text_.substr(at_).starts_with("-") && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (!range) {
        all = all.Union(low);
        continue;
      }
      const size_t dash = at_++;
      if (low.size() != 1) {
        if (!ecma_) return Error("a bad range", dash);
        ranges.push_back({'-', '-'});
        all = all.Union(low);
        continue;
      }
      TANDEM_ASSIGN_OR_RETURN(const CodePointSet high, ParseMember());
      if (high.size() != 1) {
        if (!ecma_) return Error("a bad range", dash);
        ranges.push_back({'-', '-'});
        all = all.Union(low).Union(high);
        continue;
      }
      const CodePointRange both = {low.ranges()[0].first, high.ranges()[0].first};
      if (both.first > both.last) return Error("a range whose end is before its start", dash);
      ranges.push_back(both);
    }
    ++at_;
    all = all.Union(CodePointSet(std::move(ranges)));
    if (flags_.ignore_case) all = FoldCase(all);
    return pool_.CodePoints(negated ? all.Complement() : std::move(all));
  }

  absl::StatusOr<CodePointSet> ParseMember() {
    const size_t start = at_;
    if (Take("\\")) {
      if (More() && Peek() >= '1' && Peek() <= '9') return Error("an unknown escape", start);
      return ParseEscapedSet(start, true);
    }
    return CodePointSet::Of(TakeCodePoint());
  }

  const std::string_view text_;
  const bool ecma_;
  ExpressionPool& pool_;
  Flags flags_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<ExpressionId> ParseRegex(std::string_view pattern, const RegexOptions& options,
                                        ExpressionPool& pool) {
  return RegexParser(pattern, options, pool).Parse();
}

}  // namespace tandem::gateway::constraint
