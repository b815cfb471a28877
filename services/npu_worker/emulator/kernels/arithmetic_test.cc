// Every instruction set's build of the inner loops that this processor runs.
#include "services/npu_worker/emulator/kernels/arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "services/common/base/half.h"
#include "services/common/testing/compare.h"

namespace tandem::npu::emulator {

extern const Arithmetic kArithmetic_baseline;
extern const Arithmetic kArithmetic_avx2;

namespace {

class ArithmeticTest : public ::testing::TestWithParam<const Arithmetic*> {
 protected:
  void SetUp() override {
    if (GetParam() == &kArithmetic_avx2 && !__builtin_cpu_supports("avx2")) {
      GTEST_SKIP() << "no AVX2 here";
    }
  }
  const Arithmetic& math() const { return *GetParam(); }
};

std::vector<float> Random(size_t n, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

TEST_P(ArithmeticTest, ConvertsEveryHalfExactly) {
  std::vector<uint16_t> halves(0x10000);
  for (uint32_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(halves.size());
  math().half_to_float(halves.data(), floats.data(), halves.size());
  for (uint32_t i = 0; i < halves.size(); ++i) {
    const float expected = HalfToFloat(halves[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(floats[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
  }
}

TEST_P(ArithmeticTest, DotProductsAreWithinTheBound) {
  for (const size_t n : {16u, 64u, 256u, 4096u}) {
    const auto x = Random(n, 1);
    const auto rows = Random(4 * n, 2);
    float out[4];
    math().dot_four(x.data(), rows.data(), n, out);
    for (int j = 0; j < 4; ++j) {
      const std::span<const float> row(rows.data() + j * n, n);
      double expected = 0.0;
      for (size_t i = 0; i < n; ++i) expected += double{x[i]} * row[i];
      EXPECT_NEAR(out[j], expected, testing::DotBound(n, testing::Norm(x), testing::Norm(row)));
    }
  }
}

// Scores from nothing to far below where exp() underflows, taken in two tiles.
TEST_P(ArithmeticTest, SoftmaxOverTilesIsThatOfAllPositions) {
  constexpr size_t kDim = 32;
  for (const float deviation : {0.01f, 1.0f, 6.0f}) {
    const auto q = Random(kDim, 3, deviation);
    const auto k = Random(2 * kTilePositions * kDim, 4);
    const auto v = Random(2 * kTilePositions * kDim, 5);
    const int first = 3, last = 28;
    std::vector<float> accumulator(kDim, 0.0f);
    AttentionState state = {-std::numeric_limits<float>::infinity(), 0.0f, accumulator.data()};
    math().attend_tile(q.data(), k.data(), v.data(), kDim, first, 15, &state);
    const size_t second = kTilePositions * kDim;
    math().attend_tile(q.data(), k.data() + second, v.data() + second, kDim, 0, last - 16, &state);

    std::vector<double> scores, expected(kDim, 0.0);
    double max = -1e300, sum = 0.0;
    for (int t = first; t <= last; ++t) {
      double score = 0.0;
      for (size_t d = 0; d < kDim; ++d) score += double{q[d]} * k[t * kDim + d];
      scores.push_back(score);
      max = std::max(max, score);
    }
    for (int t = first; t <= last; ++t) {
      const double weight = std::exp(scores[t - first] - max);
      sum += weight;
      for (size_t d = 0; d < kDim; ++d) expected[d] += weight * v[t * kDim + d];
    }
    // An error e in a score changes its weight by the factor exp(e); values reach 5.
    const double score_error = testing::DotBound(kDim, testing::Norm(q), std::sqrt(2.0 * kDim));
    const double bound = 5.0 * (2.0 * score_error + 1e-6);
    for (size_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(accumulator[d] / state.sum, expected[d] / sum, bound) << deviation;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, ArithmeticTest,
                         ::testing::Values(&kArithmetic_baseline, &kArithmetic_avx2,
                                           &HostArithmetic()),
                         [](const auto& test) {
                           return std::to_string(test.index) + test.param->name;
                         });

}  // namespace
}  // namespace tandem::npu::emulator
