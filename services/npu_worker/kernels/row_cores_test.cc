// The core functions for rows against float64, over the sizes of every Gemma 3.
#include "services/npu_worker/kernels/aie_host/row_cores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace tandem::npu {
namespace {

constexpr double kBound = 1e-2;  // mean relative L1
constexpr float kEpsilon = 1e-6f;

std::vector<float> Normal(std::mt19937& random, size_t size, float deviation, float mean = 0) {
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

// Sum of the errors over the sum of the magnitudes.
template <typename T>
double Error(const std::vector<double>& expected, const std::vector<T>& actual) {
  double error = 0, magnitude = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::fabs(expected[i] - double{static_cast<float>(actual[i])});
    magnitude += std::fabs(expected[i]);
  }
  return error / magnitude;
}

float FactorOf(const std::vector<float>& row) {
  const auto size = static_cast<unsigned>(row.size());
  return kRowCore.norm_factor(row.data(), size, 1.0f / static_cast<float>(size), kEpsilon);
}

std::vector<double> Norm(const std::vector<float>& row, const std::vector<float>& weights) {
  double squares = 0;
  for (const float value : row) squares += double{value} * value;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(row.size()) + kEpsilon);
  std::vector<double> normed(row.size());
  for (size_t i = 0; i < row.size(); ++i) normed[i] = row[i] * factor * weights[i];
  return normed;
}

// Sizes of the hidden width: 270m, 1b, 4b, 12b, 27b, and the smallest.  Residuals grow to the thousands.
TEST(RowCoresTest, NormsAreWithinTheBound) {
  std::mt19937 random(1);
  double worst = 0, worst_added = 0;
  for (const unsigned size : {16u, 640u, 1152u, 2560u, 3840u, 5376u}) {
    for (const float deviation : {1e-3f, 1.0f, 3000.0f}) {
      const std::vector<float> row = Normal(random, size, deviation);
      const std::vector<float> weights = Normal(random, size, 0.5f, 1.0f);
      const std::vector<double> expected = Norm(row, weights);
      std::vector<bfloat16> output(size);
      const float factor = FactorOf(row);
      kRowCore.norm_part(row.data(), weights.data(), size, factor, output.data());
      worst = std::max(worst, Error(expected, output));

      std::vector<float> residual = Normal(random, size, 10.0f);
      std::vector<double> sums(residual.begin(), residual.end());
      for (size_t i = 0; i < size; ++i) sums[i] += expected[i];
      kRowCore.norm_add_part(row.data(), weights.data(), size, factor, residual.data());
      worst_added = std::max(worst_added, Error(sums, residual));
    }
  }
  std::printf("norm %.5f, norm and sum %.1e\n", worst, worst_added);
  EXPECT_LE(worst, kBound);
  EXPECT_GT(worst, 0) << "bfloat16 is not exact";
  EXPECT_LE(worst_added, 1e-6) << "the residual stays float32";
}

TEST(RowCoresTest, ARowOfZerosStaysZero) {
  const std::vector<float> zeros(64, 0.0f), weights(64, 1.5f);
  std::vector<bfloat16> output(64, bfloat16(7.0f));
  kRowCore.norm_part(zeros.data(), weights.data(), 64, FactorOf(zeros), output.data());
  for (const bfloat16 value : output) EXPECT_EQ(static_cast<float>(value), 0.0f);
}

TEST(RowCoresTest, HeadsAreNormedAndTurnedToTheirPosition) {
  std::mt19937 random(2);
  double worst = 0;
  for (const unsigned head_dim : {64u, 128u, 256u}) {
    for (const uint32_t position : {0u, 1u, 511u, 8191u, 131071u}) {
      const std::vector<float> head = Normal(random, head_dim, 4.0f);
      const std::vector<float> weights = Normal(random, head_dim, 0.5f, 1.0f);
      const unsigned half = head_dim / 2;
      std::vector<double> angles(half);
      std::vector<float> cosines(half), sines(half);
      for (unsigned i = 0; i < half; ++i) {
        angles[i] = position / std::pow(1e6, 2.0 * i / head_dim);
        cosines[i] = static_cast<float>(std::cos(angles[i]));
        sines[i] = static_cast<float>(std::sin(angles[i]));
      }
      const std::vector<double> normed = Norm(head, weights);
      std::vector<double> expected(head_dim);
      for (unsigned i = 0; i < half; ++i) {
        const double c = std::cos(angles[i]), s = std::sin(angles[i]);
        expected[i] = normed[i] * c - normed[i + half] * s;
        expected[i + half] = normed[i] * s + normed[i + half] * c;
      }
      std::vector<bfloat16> output(head_dim);
      kRowCore.rope(head.data(), weights.data(), cosines.data(), sines.data(), head_dim, kEpsilon,
                    output.data());
      worst = std::max(worst, Error(expected, output));
    }
  }
  std::printf("norm and rotation %.5f\n", worst);
  EXPECT_LE(worst, kBound);
}

double GeluOf(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(RowCoresTest, GegluIsWithinTheBound) {
  std::mt19937 random(3);
  double worst = 0;
  for (const unsigned ffn_dim : {16u, 2048u, 6912u, 10240u, 15360u, 21504u}) {
    for (const float deviation : {0.1f, 1.0f, 5.0f}) {
      const std::vector<float> gate_up = Normal(random, 2 * ffn_dim, deviation);
      std::vector<double> expected(ffn_dim);
      for (size_t i = 0; i < ffn_dim; ++i)
        expected[i] = GeluOf(gate_up[2 * i]) * gate_up[2 * i + 1];
      std::vector<bfloat16> output(ffn_dim);
      kRowCore.geglu(gate_up.data(), ffn_dim, output.data());
      worst = std::max(worst, Error(expected, output));
    }
  }
  std::printf("GeGLU %.5f\n", worst);
  EXPECT_LE(worst, kBound);
}

// Gates that are large either way: no infinity times zero.
TEST(RowCoresTest, GatesBeyondTheExponentsRangeAreThemselvesOrZero) {
  std::vector<float> gate_up(32, 1.0f);
  const float gates[] = {-1e30f, -1000, -100, -8.5f, -8, -0.0f, 0, 8, 8.5f, 100, 1000, 1e30f};
  for (size_t i = 0; i < std::size(gates); ++i) gate_up[2 * i] = gates[i];
  std::vector<bfloat16> output(16);
  kRowCore.geglu(gate_up.data(), 16, output.data());
  for (size_t i = 0; i < std::size(gates); ++i) {
    const double expected = gates[i] > 0 ? gates[i] : 0;
    EXPECT_NEAR(static_cast<float>(output[i]), expected, std::fabs(expected) / 256 + 1e-6)
        << gates[i];
  }
}

// Cores start in floor mode: every function sets its own.
TEST(RowCoresTest, FunctionsSetTheirRoundingMode) {
  std::mt19937 random(4);
  const std::vector<float> row = Normal(random, 640, 1.0f), weights(640, 1.0f);
  std::vector<bfloat16> output(640);
  aie::set_rounding(aie::rounding_mode::floor);
  kRowCore.norm_part(row.data(), weights.data(), 640, FactorOf(row), output.data());
  double sum = 0;
  const std::vector<double> expected = Norm(row, weights);
  for (size_t i = 0; i < output.size(); ++i) {
    sum += double{static_cast<float>(output[i])} - expected[i];
  }
  // Floor would make every number about 2^-9 smaller.
  EXPECT_LT(std::fabs(sum) / 640, 2e-4);
}

}  // namespace
}  // namespace tandem::npu
