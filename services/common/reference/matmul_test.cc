#include "services/common/reference/matmul.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "services/common/testing/compare.h"
#include "services/common/testing/guarded_buffer.h"

namespace tandem::reference {
namespace {

std::vector<float> Gaussian(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(MatMulTest, MatchesTheSumInFloat64AtOddShapes) {
  for (const size_t rows : {1, 3, 4, 5, 67}) {
    for (const size_t cols : {1, 7, 8, 9, 61}) {
      for (const size_t num_weights : {1, 2, 3, 4, 13}) {
        const Matrix weights{num_weights, cols, Gaussian(num_weights * cols, 1)};
        const std::vector<float> x = Gaussian(rows * cols, 2);
        tandem::testing::GuardedBuffer<float> out(rows * num_weights);
        MatMul(x, rows, weights, out.span());
        EXPECT_TRUE(out.Intact());
        for (size_t r = 0; r < rows; ++r) {
          const auto x_row = std::span(x).subspan(r * cols, cols);
          for (size_t n = 0; n < num_weights; ++n) {
            double expected = 0.0;
            for (size_t k = 0; k < cols; ++k) {
              expected += double{x_row[k]} * double{weights.row(n)[k]};
            }
            const double bound = tandem::testing::DotBound(cols, tandem::testing::Norm(x_row),
                                                           tandem::testing::Norm(weights.row(n)));
            ASSERT_NEAR(out.span()[r * num_weights + n], expected, bound)
                << rows << " x " << cols << " x " << num_weights;
          }
        }
      }
    }
  }
}

TEST(MatMulTest, RowsAndThreadsDoNotChangeTheBits) {
  constexpr size_t kRows = 131, kCols = 203, kWeights = 331;
  const Matrix weights{kWeights, kCols, Gaussian(kWeights * kCols, 3)};
  const std::vector<float> x = Gaussian(kRows * kCols, 4);
  std::vector<float> together(kRows * kWeights), threaded(kRows * kWeights), alone(kWeights);
  MatMul(x, kRows, weights, together);
  MatMul(x, kRows, weights, threaded, 3);
  EXPECT_EQ(together, threaded);
  for (size_t r = 0; r < kRows; ++r) {
    MatMul(std::span(x).subspan(r * kCols, kCols), 1, weights, alone);
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + r * kWeights)) << r;
  }
}

}  // namespace
}  // namespace tandem::reference
