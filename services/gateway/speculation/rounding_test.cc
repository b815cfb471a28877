#include "services/gateway/speculation/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace tandem::gateway {
namespace {

TEST(RoundingTest, IsAFewThousandthsInFloat16AndHundredthsInInt8) {
  // H100, demo model of 12 layers in bf16: a relative error of 1.6e-3 at most
  // (docs/performance.md), of one result.
  EXPECT_GT(LogitRounding(12, false) / 2, 1.6e-3);
  EXPECT_LT(LogitRounding(12, false) / 2, 4e-3);
  EXPECT_GT(LogitRounding(62, true), 10 * LogitRounding(62, false));
  EXPECT_LT(LogitRounding(62, true), 0.06);
}

// The recursion of the header against layers of random numbers: x += normed(x) times a random
// matrix, and 13 roundings a layer.
TEST(RoundingTest, CoversAStackOfRandomLayers) {
  constexpr uint32_t kLayers = 24, kDim = 64;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  const double rms = 0x1p-11 / std::sqrt(3.0) * std::sqrt(13.0);
  std::vector<double> exact(kDim), rounded(kDim);
  for (uint32_t i = 0; i < kDim; ++i) exact[i] = rounded[i] = normal(random);
  const auto norm = [](const std::vector<double>& x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    return std::sqrt(squares);
  };
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    std::vector<double> matrix(kDim * kDim);
    for (double& value : matrix) value = normal(random) / std::sqrt(double{kDim});
    const auto update = [&](const std::vector<double>& x, double error) {
      const double scale = std::sqrt(double{kDim}) / norm(x);
      std::vector<double> y(kDim);
      for (uint32_t i = 0; i < kDim; ++i) {
        for (uint32_t k = 0; k < kDim; ++k) y[i] += matrix[i * kDim + k] * x[k] * scale;
        y[i] *= 1.0 + error * normal(random);
      }
      return y;
    };
    const std::vector<double> a = update(exact, 0.0), b = update(rounded, rms);
    for (uint32_t i = 0; i < kDim; ++i) {
      exact[i] += a[i];
      rounded[i] += b[i];
    }
  }
  std::vector<double> difference(kDim);
  for (uint32_t i = 0; i < kDim; ++i) difference[i] = rounded[i] - exact[i];
  const double seen = norm(difference) / norm(exact);
  // The bound is of four errors; this is one.
  EXPECT_LT(seen, LogitRounding(kLayers, false));
  EXPECT_GT(seen, LogitRounding(kLayers, false) / 8);
}

}  // namespace
}  // namespace tandem::gateway
