// Multiplication of matrices.  Part of aie.hpp.
#pragma once

#include "host_vector.hpp"

namespace aie {

// The two multiplications are different types: a program may hold cores of both generations.
#ifdef AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16
inline namespace bfp16 {
inline constexpr bool kHostSharesExponents = true;
#else
inline namespace exact {
inline constexpr bool kHostSharesExponents = false;
#endif

inline float HostPowerOf2(int exponent) {
  const auto bits = static_cast<uint32_t>(exponent + 127) << 23;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Eight elements, `stride` apart, as a block with a shared exponent.
inline void HostShareExponent(float* values, unsigned stride) {
  float largest = 0;
  for (unsigned i = 0; i < 8; ++i) largest = std::max(largest, std::fabs(values[i * stride]));
  if (largest == 0) return;
  uint32_t bits = 0;
  std::memcpy(&bits, &largest, sizeof(bits));
  const int exponent = static_cast<int>(bits >> 23) - 127;
  // Most of an emulated array's time is spent here, so no library is called where the units are normal
  // numbers.
  const bool is_usual = exponent > -100 && exponent < 100;
  const float unit =
      is_usual ? HostPowerOf2(exponent - 6) : std::ldexp(1.0f, std::ilogb(largest) - 6);
  const float units = is_usual ? HostPowerOf2(6 - exponent) : 1.0f / unit;
  if (is_usual && host_rounding == rounding_mode::conv_even) {
    // A sum with 1.5 * 2^23 rounds to whole numbers, to nearest even.
    constexpr float kWhole = 12582912.0f;
    for (unsigned i = 0; i < 8; ++i) {
      const float rounded = (values[i * stride] * units + kWhole) - kWhole;
      values[i * stride] = std::clamp(rounded, -128.0f, 127.0f) * unit;
    }
    return;
  }
  for (unsigned i = 0; i < 8; ++i) {
    const float scaled = is_usual ? values[i * stride] * units : values[i * stride] / unit;
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
