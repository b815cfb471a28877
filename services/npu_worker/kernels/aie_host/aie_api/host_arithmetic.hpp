// Arithmetic on vectors.  Part of aie.hpp.
#pragma once

#include "host_vector.hpp"

namespace aie {

// Integers wrap; others are rounded to the vector's type.
template <typename T, unsigned N>
vector<T, N> add(const vector<T, N>& a, const vector<T, N>& b) {
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) {
    if constexpr (std::is_integral_v<T>) {
      result[i] = static_cast<T>(a[i] + b[i]);
    } else {
      result[i] = HostRound<T>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
    }
  }
  return result;
}
template <typename T, unsigned N>
vector<T, N> add(const vector<T, N>& a, T b) {
  return add(a, broadcast<T, N>(b));
}
template <typename T, unsigned N>
vector<T, N> sub(const vector<T, N>& a, const vector<T, N>& b) {
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) {
    if constexpr (std::is_integral_v<T>) {
      result[i] = static_cast<T>(a[i] - b[i]);
    } else {
      result[i] = HostRound<T>(static_cast<float>(a[i]) - static_cast<float>(b[i]));
    }
  }
  return result;
}
template <typename T, unsigned N>
vector<T, N> bit_and(const vector<T, N>& a, const vector<T, N>& b) {
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) result[i] = static_cast<T>(a[i] & b[i]);
  return result;
}
template <typename T, unsigned N>
vector<T, N> downshift(const vector<T, N>& a, unsigned bits) {
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) result[i] = static_cast<T>(a[i] >> bits);
  return result;
}
template <typename T, unsigned N>
T reduce_max(const vector<T, N>& values) {
  return *std::max_element(values.data.begin(), values.data.end());
}
// In halves, as a tree.
template <typename T, unsigned N>
T reduce_add(vector<T, N> values) {
  for (unsigned half = N / 2; half > 0; half /= 2) {
    for (unsigned i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}
template <typename T, unsigned N>
vector<T, N> exp2(const vector<float, N>& values) {
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) result[i] = HostRound<T>(std::exp2(values[i]));
  return result;
}
inline float inv(float value) { return 1.0f / value; }
template <unsigned N>
vector<float, N> inv(const vector<float, N>& values) {
  vector<float, N> result;
  for (unsigned i = 0; i < N; ++i) result[i] = inv(values[i]);
  return result;
}
inline float invsqrt(float value) { return 1.0f / std::sqrt(value); }

template <unsigned N>
mask<N> operator|(const mask<N>& a, const mask<N>& b) {
  mask<N> result;
  for (unsigned i = 0; i < N; ++i) result.data[i] = a.data[i] || b.data[i];
  return result;
}
template <typename T, unsigned N>
mask<N> lt(const vector<T, N>& a, const vector<T, N>& b) {
  mask<N> result;
  for (unsigned i = 0; i < N; ++i) result.data[i] = a[i] < b[i];
  return result;
}
// Elements of `b` where the mask is set.
template <typename T, unsigned N>
vector<T, N> select(const vector<T, N>& a, const vector<T, N>& b, const mask<N>& chosen) {
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) result[i] = chosen.data[i] ? b[i] : a[i];
  return result;
}

template <typename T, unsigned N>
accum<accfloat, N> mul(const vector<T, N>& a, const vector<T, N>& b) {
  accum<accfloat, N> result;
  for (unsigned i = 0; i < N; ++i) {
    result.data[i] = static_cast<float>(a[i]) * static_cast<float>(b[i]);
  }
  return result;
}

}  // namespace aie
