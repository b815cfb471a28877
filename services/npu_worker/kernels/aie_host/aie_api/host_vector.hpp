// Numbers, vectors and how they are rearranged.  Part of aie.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

using int8 = int8_t;
using int16 = int16_t;
using int32 = int32_t;
using uint16 = uint16_t;
struct int4 {};  // only in vectors, two a byte
struct accfloat {};

namespace aie {

enum class rounding_mode { floor, conv_even };

// The registers of the core that the calling thread stands for.
inline thread_local rounding_mode host_rounding = rounding_mode::floor;
inline void set_rounding(rounding_mode mode) { host_rounding = mode; }

inline uint16_t HostToBfloat16(float value, rounding_mode mode) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto high = static_cast<uint16_t>(bits >> 16);
  const uint32_t low = bits & 0xFFFF;
  if (low == 0) return high;
  if ((bits & 0x7F800000) == 0x7F800000) return high | 0x40;  // NaN stays NaN
  if (mode == rounding_mode::floor) return static_cast<uint16_t>(high + (bits >> 31));
  return static_cast<uint16_t>(high + (low > 0x8000 || (low == 0x8000 && (high & 1) != 0)));
}

}  // namespace aie

struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  // The scalar unit's conversion: to the nearest.
  bfloat16(float value)  // NOLINT: as on the core
      : bits(aie::HostToBfloat16(value, aie::rounding_mode::conv_even)) {}
  operator float() const {  // NOLINT: as on the core
    const uint32_t wide = uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
};

namespace aie {

// `value` as a vector's element, by the core's rounding mode.
template <typename T>
T HostRound(float value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    bfloat16 rounded;
    rounded.bits = HostToBfloat16(value, host_rounding);
    return rounded;
  } else {
    return static_cast<T>(value);
  }
}

template <typename T, unsigned N>
struct vector {
  std::array<T, N> data{};

  T operator[](unsigned i) const { return data[i]; }
  T& operator[](unsigned i) { return data[i]; }
  template <unsigned M>
  vector<T, M> extract(unsigned part) const {
    vector<T, M> result;
    std::copy_n(data.begin() + part * M, M, result.data.begin());
    return result;
  }
  template <typename U>
  auto cast_to() const;
};
template <unsigned N>
struct vector<int4, N> {
  std::array<uint8_t, N / 2> data{};
};

template <typename T, unsigned N>
template <typename U>
auto vector<T, N>::cast_to() const {
  constexpr unsigned kElements =
      std::is_same_v<U, int4> ? 2 * sizeof(T) * N : sizeof(T) * N / sizeof(U);
  vector<U, kElements> result;
  static_assert(sizeof(result) == sizeof(*this));
  std::memcpy(result.data.data(), data.data(), sizeof(result));
  return result;
}

template <typename Kind, unsigned N>
struct accum {
  std::array<float, N> data{};

  accum() = default;
  template <typename T>
  explicit accum(const vector<T, N>& values) {
    for (unsigned i = 0; i < N; ++i) data[i] = static_cast<float>(values[i]);
  }
  template <typename T>
  vector<T, N> to_vector() const {
    vector<T, N> result;
    for (unsigned i = 0; i < N; ++i) result[i] = HostRound<T>(data[i]);
    return result;
  }
};

template <unsigned N>
struct mask {
  std::array<bool, N> data{};
};

template <unsigned N, typename T>
vector<T, N> load_v(const T* from) {
  vector<T, N> result;
  std::memcpy(result.data.data(), from, sizeof(result));
  return result;
}
template <typename T, unsigned N>
void store_v(T* to, const vector<T, N>& values) {
  std::memcpy(to, values.data.data(), sizeof(values));
}
template <typename T, unsigned N>
vector<T, N> zeros() {
  return {};
}
template <typename T, unsigned N>
vector<T, N> broadcast(T value) {
  vector<T, N> result;
  result.data.fill(value);
  return result;
}
template <typename T, unsigned N>
vector<T, 2 * N> concat(const vector<T, N>& low, const vector<T, N>& high) {
  vector<T, 2 * N> result;
  std::copy(low.data.begin(), low.data.end(), result.data.begin());
  std::copy(high.data.begin(), high.data.end(), result.data.begin() + N);
  return result;
}
template <typename T, unsigned N>
vector<T, N> transpose(const vector<T, N>& values, unsigned rows, unsigned columns) {
  vector<T, N> result;
  for (unsigned row = 0; row < rows; ++row) {
    for (unsigned column = 0; column < columns; ++column) {
      result[column * rows + row] = values[row * columns + column];
    }
  }
  return result;
}
template <typename T, unsigned N>
vector<T, N / 2> filter_even(const vector<T, N>& values) {
  vector<T, N / 2> result;
  for (unsigned i = 0; i < N / 2; ++i) result[i] = values[2 * i];
  return result;
}
template <typename T, unsigned N>
vector<T, N / 2> filter_odd(const vector<T, N>& values) {
  vector<T, N / 2> result;
  for (unsigned i = 0; i < N / 2; ++i) result[i] = values[2 * i + 1];
  return result;
}
// Sign-extends.
template <unsigned N>
vector<int8, N> unpack(const vector<int4, N>& values) {
  vector<int8, N> result;
  for (unsigned i = 0; i < N; ++i) {
    const unsigned nibble = (values.data[i / 2] >> (i % 2 * 4)) & 0xF;
    result[i] = static_cast<int8>(static_cast<int>(nibble ^ 8) - 8);
  }
  return result;
}
// values * 2^-shift.
template <typename T, typename U, unsigned N>
vector<T, N> to_float(const vector<U, N>& values, int shift = 0) {
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) {
    result[i] = HostRound<T>(std::ldexp(static_cast<float>(values[i]), -shift));
  }
  return result;
}

}  // namespace aie
