// What the parsers of GBNF and Lark share: a text with line numbers, and rules by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "services/gateway/constraint/grammar/grammar_source.h"

namespace tandem::gateway::constraint {

inline constexpr int kMaxGrammarDepth = 200;
inline constexpr uint32_t kMaxGrammarRepeat = 1'000'000;

class SourceReader {
 public:
  SourceReader(std::string_view language, std::string_view text)
      : language_(language), text_(text) {}

  bool More() const { return at_ < text_.size(); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  char Next() { return text_[at_++]; }
  bool StartsWith(std::string_view literal) const { return text_.substr(at_).starts_with(literal); }
  bool Take(std::string_view literal) {
    if (!StartsWith(literal)) return false;
    at_ += literal.size();
    return true;
  }
  // The longest run of characters that `is` holds for.
  template <typename Is>
  std::string_view TakeWhile(Is is) {
    const size_t begin = at_;
    while (More() && is(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // REQUIRES: More(), the text is UTF-8.
  uint32_t TakeCodePoint();
  // The value of exactly `digits` hexadecimal digits, at most 8; nothing where there are fewer.
  std::optional<uint32_t> TakeHex(int digits);
  std::string_view text() const { return text_; }
  size_t at() const { return at_; }
  void Seek(size_t at) { at_ = at; }

  // INVALID_ARGUMENT: "GBNF: line 3, column 7: `what`".
  absl::Status Error(std::string_view what) const { return ErrorAt(at_, what); }
  absl::Status ErrorAt(size_t at, std::string_view what) const;

 private:
  const std::string_view language_;
  const std::string_view text_;
  size_t at_ = 0;
};

// Rules that are named before they are given.
class RuleTable {
 public:
  explicit RuleTable(GrammarSource& source) : source_(source) {}

  // The number of rule `name`, first used at `at`.
  uint32_t Use(std::string_view name, size_t at);
  // Gives a rule its body; false where it has one.
  bool Define(uint32_t rule, ExpressionId body);
  bool IsDefined(uint32_t rule) const { return defined_[rule]; }
  std::string_view name(uint32_t rule) const { return source_.names[rule]; }
  // INVALID_ARGUMENT where a used rule has no body.
  absl::Status CheckAllDefined(const SourceReader& reader) const;

 private:
  GrammarSource& source_;
  absl::flat_hash_map<std::string, uint32_t> numbers_;
  std::vector<bool> defined_;
  std::vector<size_t> used_at_;
};

}  // namespace tandem::gateway::constraint
