#include "services/common/testing/compare.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "services/common/testing/guarded_buffer.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

TEST(CompareTest, FailureNamesTheWorstElement) {
  const std::vector<float> expected = {1.0f, 2.0f, 3.0f};
  const std::vector<float> actual = {1.25f, 2.0f, 3.5f};
  EXPECT_TRUE(IsNear(actual, expected, 0.5));
  const auto result = IsNear(actual, expected, 0.1);
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("is 2: actual 3.5, expected 3"));
}

TEST(CompareTest, NanIsNeverNear) {
  const std::vector<float> expected = {0.0f, 1.0f};
  const std::vector<float> actual = {0.0f, std::nanf("")};
  EXPECT_FALSE(IsNear(actual, expected, std::numeric_limits<double>::max()));
  EXPECT_FALSE(IsNearInNorm(actual, expected, std::numeric_limits<double>::max()));
}

TEST(CompareTest, MissingElementsAreNotNear) {
  const std::vector<float> expected = {0.0f, 1.0f};
  EXPECT_FALSE(IsNear(std::span(expected).first(1), expected, 1.0));
}

TEST(CompareTest, DivergenceOfTwoCoinsIsTheKnownValue) {
  const std::vector<float> fair = {0.0f, 0.0f};
  const std::vector<float> biased = {std::log(3.0f), 0.0f};  // 3/4, 1/4
  EXPECT_NEAR(KlDivergence(fair, biased), 0.5 * std::log(4.0 / 3.0), 1e-7);
  EXPECT_EQ(KlDivergence(biased, biased), 0.0);
}

TEST(GuardedBufferTest, SeesAWriteOnEitherSide) {
  GuardedBuffer<float> buffer(5);
  EXPECT_TRUE(buffer.Intact());
  buffer.data()[4] = 1.0f;
  EXPECT_TRUE(buffer.Intact());
  buffer.data()[5] = 1.0f;
  EXPECT_FALSE(buffer.Intact());
  GuardedBuffer<float> other(5);
  other.data()[-1] = 1.0f;
  EXPECT_FALSE(other.Intact());
}

}  // namespace
}  // namespace tandem::testing
