// The part of AMD's AIE API that this project's cores use, for the host: tests run the cores' own
// source.
//
// Modelled:
//   * bfloat16 storage, float32 accumulators, products that are exact in float32
//   * rounding to bfloat16 by the core's mode, which starts as floor
//   * AIE2P's bfloat16 multiplication by block floating point
//     (AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16): 8 elements along the inner dimension share an
//     exponent and have 8-bit mantissas in two's complement
// Not modelled: the order of additions within a matrix multiplication, and the tables behind exp2
// and inv. Results are representative, not bit for bit those of a core.
#pragma once

#include <algorithm>
#include <array>
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

// Integers, which wrap.
template <typename T, unsigned N>
vector<T, N> add(const vector<T, N>& a, const vector<T, N>& b) {
  static_assert(std::is_integral_v<T>);
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) result[i] = static_cast<T>(a[i] + b[i]);
  return result;
}
template <typename T, unsigned N>
vector<T, N> add(const vector<T, N>& a, T b) {
  return add(a, broadcast<T, N>(b));
}
template <typename T, unsigned N>
vector<T, N> sub(const vector<T, N>& a, const vector<T, N>& b) {
  static_assert(std::is_integral_v<T>);
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) result[i] = static_cast<T>(a[i] - b[i]);
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

// The two multiplications are different types: a program may hold cores of both generations.
#ifdef AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16
inline namespace bfp16 {
inline constexpr bool kHostSharesExponents = true;
#else
inline namespace exact {
inline constexpr bool kHostSharesExponents = false;
#endif

// Eight elements, `stride` apart, as a block with a shared exponent.
inline void HostShareExponent(float* values, unsigned stride) {
  float largest = 0;
  for (unsigned i = 0; i < 8; ++i) largest = std::max(largest, std::fabs(values[i * stride]));
  if (largest == 0) return;
  const float unit = std::ldexp(1.0f, std::ilogb(largest) - 6);
  for (unsigned i = 0; i < 8; ++i) {
    const float scaled = values[i * stride] / unit;
    const float rounded =
        host_rounding == rounding_mode::conv_even ? std::nearbyint(scaled) : std::floor(scaled);
    values[i * stride] = std::clamp(rounded, -128.0f, 127.0f) * unit;
  }
}

// sums [M, N] += a [M, K] * b [K, N], all row-major.
template <unsigned M, unsigned K, unsigned N, typename TA, typename TB, typename Accumulator>
struct mmul {
  static constexpr unsigned size_A = M * K, size_B = K * N, size_C = M * N;
  std::array<float, size_C> sums{};

  mmul() = default;
  explicit mmul(const vector<float, size_C>& start) : sums(start.data) {}
  void mac(const vector<TA, size_A>& a, const vector<TB, size_B>& b) {
    std::array<float, size_A> left;
    std::array<float, size_B> right;
    for (unsigned i = 0; i < size_A; ++i) left[i] = static_cast<float>(a[i]);
    for (unsigned i = 0; i < size_B; ++i) right[i] = static_cast<float>(b[i]);
    if constexpr (kHostSharesExponents) {
      static_assert(K == 8);
      for (unsigned row = 0; row < M; ++row) HostShareExponent(&left[row * K], 1);
      for (unsigned column = 0; column < N; ++column) HostShareExponent(&right[column], N);
    }
    for (unsigned row = 0; row < M; ++row) {
      for (unsigned k = 0; k < K; ++k) {
        const float factor = left[row * K + k];
        for (unsigned column = 0; column < N; ++column) {
          sums[row * N + column] += factor * right[k * N + column];
        }
      }
    }
  }
  template <typename T>
  vector<T, size_C> to_vector() const {
    vector<T, size_C> result;
    for (unsigned i = 0; i < size_C; ++i) result[i] = HostRound<T>(sums[i]);
    return result;
  }
};

}  // namespace bfp16 or exact
}  // namespace aie
