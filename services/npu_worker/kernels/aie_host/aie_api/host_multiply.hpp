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

// Eight blocks at once: each column of `values` [8, 8], row-major, is a block.  Most of an emulated array's time is
// spent here, so the usual case is loops over eight columns that a compiler makes vector instructions of.
inline void HostShareExponents(std::array<float, 64>& values) {
  std::array<float, 8> largest{};
  for (unsigned i = 0; i < 8; ++i) {
    for (unsigned block = 0; block < 8; ++block) {
      const float magnitude = std::fabs(values[8 * i + block]);
      largest[block] = largest[block] < magnitude ? magnitude : largest[block];
    }
  }
  // 2^(exponent - 6) and its inverse, by their bits.  A block of zeros has any unit.
  std::array<float, 8> unit;
  std::array<float, 8> units;
  bool is_usual = host_rounding == rounding_mode::conv_even;
  for (unsigned block = 0; block < 8; ++block) {
    const float value = largest[block] == 0 ? 1.0f : largest[block];
    const auto exponent = static_cast<int>(std::bit_cast<uint32_t>(value) >> 23) - 127;
    is_usual &= exponent > -100 && exponent < 100;
    unit[block] = std::bit_cast<float>(static_cast<uint32_t>(exponent - 6 + 127) << 23);
    units[block] = std::bit_cast<float>(static_cast<uint32_t>(6 - exponent + 127) << 23);
  }
  if (!is_usual) {
    for (unsigned block = 0; block < 8; ++block) HostShareExponent(&values[block], 8);
    return;
  }
  for (unsigned i = 0; i < 8; ++i) {
    for (unsigned block = 0; block < 8; ++block) {
      // A sum with 1.5 * 2^23 rounds to whole numbers, to nearest even.
      constexpr float kWhole = 12582912.0f;
      const float rounded = (values[8 * i + block] * units[block] + kWhole) - kWhole;
      // Its magnitude is 128 at most.
      values[8 * i + block] = (rounded > 127.0f ? 127.0f : rounded) * unit[block];
    }
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
    HostMac(HostLeft(a), HostRight(b));
  }

  // mac in two parts, so that what is multiplied many times is converted once.
  static std::array<float, size_A> HostLeft(const vector<TA, size_A>& a) {  // [K, M]
    std::array<float, size_A> left;
    for (unsigned row = 0; row < M; ++row) {
      for (unsigned k = 0; k < K; ++k) left[k * M + row] = static_cast<float>(a[row * K + k]);
    }
    if constexpr (kHostSharesExponents) {
      static_assert(M == 8 && K == 8);
      HostShareExponents(left);
    }
    return left;
  }
  static std::array<float, size_B> HostRight(const vector<TB, size_B>& b) {
    std::array<float, size_B> right;
    for (unsigned i = 0; i < size_B; ++i) right[i] = static_cast<float>(b[i]);
    if constexpr (kHostSharesExponents) {
      static_assert(K == 8 && N == 8);
      HostShareExponents(right);
    }
    return right;
  }
  void HostMac(const std::array<float, size_A>& left, const std::array<float, size_B>& right) {
    // GCC 12 left to itself makes vectors of other elements and permutes them.
    typedef float Row __attribute__((vector_size(N * sizeof(float))));
    for (unsigned row = 0; row < M; ++row) {
      Row sum, factors;
      std::memcpy(&sum, &sums[row * N], sizeof(Row));
      for (unsigned k = 0; k < K; ++k) {
        std::memcpy(&factors, &right[k * N], sizeof(Row));
        sum += left[k * M + row] * factors;
      }
      std::memcpy(&sums[row * N], &sum, sizeof(Row));
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
