#include "services/gateway/constraint/schema/json_numbers.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "services/gateway/constraint/regex/expression.h"

namespace tandem::gateway::constraint {
namespace {

// Builds the texts of numbers that are not negative, bounded on one side.
class BoundedNumbers {
 public:
  explicit BoundedNumbers(RegexArena& arena) : arena_(arena) {
    digit_ = Digits('0', '9');
    digits_ = arena.Repeat(digit_, 0, kUnlimited);
    some_digits_ = arena.Repeat(digit_, 1, kUnlimited);
    any_fraction_ = arena.Optional(arena.Concat(arena.Byte('.'), some_digits_));
    whole_ = arena.Or(arena.Byte('0'), arena.Concat(Digits('1', '9'), digits_));
  }

  RegexId whole() const { return whole_; }
  RegexId any() { return arena_.Concat(whole_, any_fraction_); }
  RegexId positive() {
    return arena_.And(any(), arena_.Not(arena_.Concat(arena_.Byte('0'), ZeroFraction())));
  }
  RegexId ZeroFraction() {
    return arena_.Optional(
        arena_.Concat(arena_.Byte('.'), arena_.Repeat(arena_.Byte('0'), 1, kUnlimited)));
  }
  RegexId digits_up_to(uint32_t count) { return arena_.Repeat(digit_, 1, count); }

  // Above (or, unless `strict`, at) a.
  RegexId AtLeast(const Decimal& a, bool strict) {
    const auto length = static_cast<uint32_t>(a.whole.size());
    std::vector<RegexId> either;
    // More digits, or a larger digit after equal ones.
    either.push_back(arena_.Concat(
        arena_.Concat(Digits('1', '9'), arena_.Repeat(digit_, length, kUnlimited)), any_fraction_));
    for (uint32_t i = 0; i < length; ++i) {
      const char c = a.whole[i];
      if (c == '9') continue;
      either.push_back(
          Sequence({arena_.Literal(a.whole.substr(0, i)), Digits(static_cast<char>(c + 1), '9'),
                    arena_.Repeat(digit_, length - i - 1, length - i - 1), any_fraction_}));
    }
    either.push_back(arena_.Concat(arena_.Literal(a.whole), FractionAtLeast(a.fraction, strict)));
    return arena_.Or(std::move(either));
  }

  // Below (or, unless `strict`, at) b.
  RegexId AtMost(const Decimal& b, bool strict) {
    const auto length = static_cast<uint32_t>(b.whole.size());
    std::vector<RegexId> either;
    if (length > 1) {
      either.push_back(Sequence(
          {arena_.Or(arena_.Byte('0'),
                     arena_.Concat(Digits('1', '9'), arena_.Repeat(digit_, 0, length - 2))),
           any_fraction_}));
    }
    for (uint32_t i = 0; i < length; ++i) {
      const char lowest = i == 0 && length > 1 ? '1' : '0';
      if (b.whole[i] <= lowest) continue;
      either.push_back(Sequence(
          {arena_.Literal(b.whole.substr(0, i)), Digits(lowest, static_cast<char>(b.whole[i] - 1)),
           arena_.Repeat(digit_, length - i - 1, length - i - 1), any_fraction_}));
    }
    either.push_back(arena_.Concat(arena_.Literal(b.whole), FractionAtMost(b.fraction, strict)));
    return arena_.Or(std::move(either));
  }

 private:
  RegexId Digits(char first, char last) {
    return arena_.Bytes(
        ByteSet::Range(static_cast<unsigned char>(first), static_cast<unsigned char>(last)));
  }
  RegexId Sequence(std::initializer_list<RegexId> parts) {
    RegexId all = kEmptyText;
    for (const RegexId part : parts) all = arena_.Concat(all, part);
    return all;
  }
  RegexId NotZeroDigits() { return Sequence({digits_, Digits('1', '9'), digits_}); }

  RegexId FractionAtLeast(const std::string& fraction, bool strict) {
    if (fraction.empty()) {
      return strict ? arena_.Concat(arena_.Byte('.'), NotZeroDigits()) : any_fraction_;
    }
    std::vector<RegexId> either;
    for (size_t i = 0; i < fraction.size(); ++i) {
      if (fraction[i] == '9') continue;
      either.push_back(Sequence({arena_.Literal(fraction.substr(0, i)),
                                 Digits(static_cast<char>(fraction[i] + 1), '9'), digits_}));
    }
    either.push_back(arena_.Concat(arena_.Literal(fraction), strict ? NotZeroDigits() : digits_));
    return arena_.Concat(arena_.Byte('.'), arena_.Or(std::move(either)));
  }

  RegexId FractionAtMost(const std::string& fraction, bool strict) {
    if (fraction.empty()) return strict ? kNothing : ZeroFraction();
    std::vector<RegexId> either;
    for (size_t i = 0; i < fraction.size(); ++i) {
      const RegexId before = arena_.Literal(fraction.substr(0, i));
      // A proper beginning is below, for the last digit is not zero.
      if (i > 0) either.push_back(before);
      if (fraction[i] == '0') continue;
      either.push_back(
          Sequence({before, Digits('0', static_cast<char>(fraction[i] - 1)), digits_}));
    }
    if (!strict) {
      either.push_back(
          arena_.Concat(arena_.Literal(fraction), arena_.Repeat(arena_.Byte('0'), 0, kUnlimited)));
    }
    return arena_.Optional(arena_.Concat(arena_.Byte('.'), arena_.Or(std::move(either))));
  }

  RegexArena& arena_;
  RegexId digit_;
  RegexId digits_;
  RegexId some_digits_;
  RegexId any_fraction_;
  RegexId whole_;
};

int CompareMagnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  const int whole = a.whole.compare(b.whole);
  return whole != 0 ? whole : a.fraction.compare(b.fraction);
}

}  // namespace

Decimal Decimal::Of(double value) {
  char buffer[512];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  Decimal decimal;
  if (text.starts_with("-")) {
    decimal.negative = true;
    text.remove_prefix(1);
  }
  const size_t point = text.find('.');
  decimal.whole = text.substr(0, point);
  if (point != std::string_view::npos) decimal.fraction = text.substr(point + 1);
  while (decimal.fraction.ends_with('0')) decimal.fraction.pop_back();
  if (decimal.IsZero()) decimal.negative = false;
  return decimal;
}

Decimal Decimal::Of(const OrderedJson& number) {
  if (!number.is_number_integer()) return Of(number.get<double>());
  Decimal decimal;
  decimal.whole = number.dump();
  decimal.negative = decimal.whole.starts_with('-');
  if (decimal.negative) decimal.whole.erase(0, 1);
  return decimal;
}

int Compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  return a.negative ? -CompareMagnitudes(a, b) : CompareMagnitudes(a, b);
}

RegexId NumberRegex(const NumberBounds& bounds, RegexArena& arena) {
  BoundedNumbers builder(arena);
  const RegexId minus = arena.Byte('-');
  const bool bounded = bounds.min || bounds.max || bounds.max_fraction != UINT32_MAX;
  RegexId fraction = kEmptyText;
  if (!bounds.integer && bounds.max_fraction > 0) {
    fraction =
        arena.Optional(arena.Concat(arena.Byte('.'), builder.digits_up_to(bounds.max_fraction)));
  }
  RegexId magnitude = arena.Concat(builder.whole(), fraction);
  if (!bounded && !bounds.integer) {
    ByteSet e;
    e.Add('e');
    e.Add('E');
    ByteSet sign;
    sign.Add('+');
    sign.Add('-');
    const RegexId exponent = arena.Concat(
        arena.Bytes(e), arena.Concat(arena.Optional(arena.Bytes(sign)), builder.digits_up_to(2)));
    magnitude = arena.Concat(magnitude, arena.Optional(exponent));
  }
  if (!bounded) {
    // "-0" reads as an integer; what matters is that no text is wrong.
    return arena.Concat(arena.Optional(minus), magnitude);
  }
  std::vector<RegexId> either;
  const auto& min = bounds.min;
  const auto& max = bounds.max;
  if (!max || !max->negative) {  // zero and above
    std::vector<RegexId> all = {magnitude};
    if (min && !min->negative) all.push_back(builder.AtLeast(*min, bounds.min_exclusive));
    if (max) all.push_back(builder.AtMost(*max, bounds.max_exclusive));
    either.push_back(arena.And(std::move(all)));
  }
  if (!min || min->negative) {  // below zero
    std::vector<RegexId> all = {magnitude, builder.positive()};
    if (max && max->negative) all.push_back(builder.AtLeast(*max, bounds.max_exclusive));
    if (min) all.push_back(builder.AtMost(*min, bounds.min_exclusive));
    either.push_back(arena.Concat(minus, arena.And(std::move(all))));
  }
  for (RegexId& part : either) {
    if (!arena.IsLive(part)) part = kNothing;
  }
  return arena.Or(std::move(either));
}

}  // namespace tandem::gateway::constraint
