#include "services/gateway/sampling/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::gateway {
namespace {

// kat_vectors of the paper's own library, Random123.
TEST(PhiloxTest, GivesThePublishedAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformDrawTest, DependsOnSeedAndCounterAlone) {
  EXPECT_EQ(UniformDraw(7, 3), UniformDraw(7, 3));
  EXPECT_NE(UniformDraw(7, 3), UniformDraw(7, 4));
  EXPECT_NE(UniformDraw(7, 3), UniformDraw(8, 3));
  // The upper halves count too.
  EXPECT_NE(UniformDraw(7, 3), UniformDraw(7 + (uint64_t{1} << 32), 3));
  EXPECT_NE(UniformDraw(7, 3), UniformDraw(7, 3 + (uint64_t{1} << 32)));
}

TEST(UniformDrawTest, HasTheMomentsOfTheUniformDistribution) {
  constexpr int kDraws = 100'000;
  double sum = 0.0;
  double squares = 0.0;
  for (int n = 0; n < kDraws; ++n) {
    const double u = UniformDraw(12345, n);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  // Five standard deviations of the means of u (variance 1/12) and u^2 (variance 4/45).
  EXPECT_NEAR(sum / kDraws, 1.0 / 2, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kDraws));
}

}  // namespace
}  // namespace tandem::gateway
