// Numbers within bounds as regular languages.
#pragma once

#include <optional>
#include <string>

#include "services/gateway/constraint/regex/regex_arena.h"
#include "services/gateway/constraint/schema/json_style.h"

namespace tandem::gateway::constraint {

// A number in decimal, without an exponent: -12.5 is {true, "12", "5"}.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // no leading zeros
  std::string fraction;     // no trailing zeros

  bool IsZero() const { return whole == "0" && fraction.empty(); }
  // Of a finite double: the shortest decimal that reads back as it.
  static Decimal Of(double value);
  // Integers to the last digit, others as a double.
  static Decimal Of(const OrderedJson& number);
};

// Below zero, zero or above it, as a is below, equal to or above b.
int Compare(const Decimal& a, const Decimal& b);

struct NumberBounds {
  std::optional<Decimal> min;
  std::optional<Decimal> max;
  bool min_exclusive = false;
  bool max_exclusive = false;
  bool integer = false;                // written without a fraction
  uint32_t max_fraction = UINT32_MAX;  // digits
};

// The texts of the numbers within `bounds`; kNothing where there are none.  Without min, max and
// max_fraction numbers may have exponents of up to two digits; with them they have none.  -0 is not
// among them.
RegexId NumberRegex(const NumberBounds& bounds, RegexArena& arena);

}  // namespace tandem::gateway::constraint
