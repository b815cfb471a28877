// Numbers as the hardware has them: float16 and bfloat16, denormals, minimum and maximum, and
// conversions to integers that saturate.  Loops over lanes call these, so they have no branches
// where that is possible.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tandem::rdna {

// How a result that has no exact form is rounded; the values of MODE's fields.
enum class Round : uint8_t { kNearestEven, kUp, kDown, kToZero };

inline constexpr uint32_t kNan32 = 0x7fc00000;

inline float AsFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t AsBits(float value) { return std::bit_cast<uint32_t>(value); }
inline double AsDouble(uint64_t bits) { return std::bit_cast<double>(bits); }
inline uint64_t AsBits64(double value) { return std::bit_cast<uint64_t>(value); }

// Denormals become zero of the same sign.
inline uint32_t Flush32(uint32_t bits) {
  return (bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits;
}
inline uint16_t Flush16(uint16_t bits) { return (bits & 0x7c00) == 0 ? bits & 0x8000 : bits; }
inline uint64_t Flush64(uint64_t bits) {
  return (bits >> 52 & 0x7ff) == 0 ? bits & (uint64_t{1} << 63) : bits;
}

// float16 to float32, exactly.
inline float HalfToFloat(uint32_t half) {
  const uint32_t sign = (half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  // Normal numbers and those without a number: the exponent's bias and width differ.
  const uint32_t normal = (magnitude << 13) + ((magnitude >= 0x7c00) ? 0x70000000u : 0x38000000u);
  // Denormals: a multiple of 2^-24.
  const uint32_t denormal = AsBits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  return AsFloat(sign | (magnitude < 0x400 ? denormal : normal));
}

// A double to float16, rounded once.
inline uint16_t DoubleToHalf(double value, Round round = Round::kNearestEven) {
  const uint64_t bits = AsBits64(value);
  const uint32_t sign = static_cast<uint32_t>(bits >> 63) << 15;
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  if (magnitude > 0x7ff0000000000000) {
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 42 & 0x1ff));
  }
  if (magnitude == 0x7ff0000000000000) return static_cast<uint16_t>(sign | 0x7c00);
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  const uint64_t mantissa =
      (magnitude & 0xfffffffffffff) | (magnitude >> 52 != 0 ? uint64_t{1} << 52 : 0);
  // The weight of the last bit that is kept is 2^(max(exponent, -14) - 10).
  int drop = 42 + (exponent < -14 ? -14 - exponent : 0);
  if (drop > 63) drop = 63;
  uint64_t kept = mantissa >> drop;
  const uint64_t rest = mantissa & ((uint64_t{1} << drop) - 1), tie = uint64_t{1} << (drop - 1);
  bool up = false;
  switch (round) {
    case Round::kNearestEven:
      up = rest > tie || (rest == tie && (kept & 1) != 0);
      break;
    case Round::kUp:
      up = rest != 0 && sign == 0;
      break;
    case Round::kDown:
      up = rest != 0 && sign != 0;
      break;
    case Round::kToZero:
      break;
  }
  kept += up ? 1 : 0;
  // A carry out of the mantissa gives the next exponent by itself.
  const uint64_t scaled =
      exponent < -14 ? kept : kept + (static_cast<uint64_t>(exponent + 14) << 10);
  if (exponent > 15 || scaled >= 0x7c00) {
    const bool to_infinity = round == Round::kNearestEven || (round == Round::kUp && sign == 0) ||
                             (round == Round::kDown && sign != 0);
    return static_cast<uint16_t>(sign | (to_infinity ? 0x7c00 : 0x7bff));
  }
  return static_cast<uint16_t>(sign | scaled);
}

// float32 to float16, rounded to nearest even: no branches.
inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = AsBits(value);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  const uint32_t normal = (rounded - 0x38000000) >> 13;
  // The addition rounds to a multiple of 2^-24.
  const uint32_t denormal = AsBits(AsFloat(magnitude < 0x38800000 ? magnitude : 0) + 0.5f) & 0x7ff;
  const uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x1ff);
  uint32_t half = magnitude < 0x38800000 ? denormal : normal;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;
  half = magnitude > 0x7f800000 ? nan : half;
  return static_cast<uint16_t>(sign | half);
}

// A double as a float that rounds to the same float16: cut off, and odd if that was not exact.
inline float OddFloat(double value) {
  const auto nearest = static_cast<float>(value);
  const auto back = static_cast<double>(nearest);
  uint32_t bits = AsBits(nearest);
  bits -= std::fabs(back) > std::fabs(value) ? 1 : 0;
  bits |= back != value && value == value ? 1 : 0;
  return AsFloat(bits);
}

inline float Bf16ToFloat(uint32_t bits) { return AsFloat(bits << 16); }
inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = AsBits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The IEEE minimum of two numbers: not-a-number loses, -0 is below 0.
template <class Float>
Float Minimum(Float a, Float b) {
  const Float lower = (a < b || (a == b && std::signbit(a))) ? a : b;
  return a != a ? b : (b != b ? a : lower);
}
template <class Float>
Float Maximum(Float a, Float b) {
  const Float higher = (a > b || (a == b && !std::signbit(a))) ? a : b;
  return a != a ? b : (b != b ? a : higher);
}
template <class Number>
Number Median(Number a, Number b, Number c) {
  if constexpr (std::numeric_limits<Number>::is_iec559) {
    if (a != a || b != b || c != c) return Minimum(Minimum(a, b), c);
    return Maximum(Minimum(a, b), Minimum(Maximum(a, b), c));
  } else {
    const Number low = a < b ? a : b, high = a < b ? b : a;
    const Number upper = high < c ? high : c;
    return low > upper ? low : upper;
  }
}

// Towards zero, limited to the integer's range; not-a-number is 0.
template <class Integer>
Integer ToInteger(double value) {
  constexpr double low = static_cast<double>(std::numeric_limits<Integer>::min());
  constexpr double high = static_cast<double>(std::numeric_limits<Integer>::max());
  if (!(value == value)) return 0;
  if (value <= low) return std::numeric_limits<Integer>::min();
  if (value >= high) return std::numeric_limits<Integer>::max();
  return static_cast<Integer>(value);
}

// To the nearest whole number, halves to even, whatever the rounding mode.
template <class Float>
Float RoundEven(Float value) {
  Float below = std::floor(value);
  const Float rest = value - below;
  if (rest > Float(0.5) || (rest == Float(0.5) && std::fmod(below, Float(2)) != 0)) below += 1;
  return std::copysign(below, value);
}

inline int32_t SignExtend(uint32_t value, uint32_t bits) {
  return bits == 0 ? 0 : static_cast<int32_t>(value << (32 - bits)) >> (32 - bits);
}

// A number limited to the range of an integer type, as its bits.
template <class Integer>
uint32_t Saturate(int64_t value) {
  constexpr int64_t low = std::numeric_limits<Integer>::min();
  constexpr int64_t high = std::numeric_limits<Integer>::max();
  return static_cast<uint32_t>(value < low ? low : value > high ? high : value);
}

inline uint32_t ReverseBits(uint32_t value) {
  value = (value >> 1 & 0x55555555) | (value & 0x55555555) << 1;
  value = (value >> 2 & 0x33333333) | (value & 0x33333333) << 2;
  value = (value >> 4 & 0x0f0f0f0f) | (value & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(value);
}

}  // namespace tandem::rdna
