#include "services/common/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

TEST(HalfTest, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      EXPECT_EQ(FloatToHalf(value), half) << bits;
    }
  }
}

// IEEE 754: (-1)^s * 2^(e-15) * (1 + m/1024), subnormals 2^-14 * m/1024.
TEST(HalfTest, FiniteHalvesHaveTheValueOfTheirFields) {
  for (int bits = 0; bits < 0x7C00; ++bits) {
    const int exponent = bits >> 10;
    const int mantissa = bits & 0x3FF;
    const float expected = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                         : std::ldexp(1.0f + mantissa / 1024.0f, exponent - 15);
    ASSERT_EQ(HalfToFloat(static_cast<uint16_t>(bits)), expected) << bits;
    ASSERT_EQ(HalfToFloat(static_cast<uint16_t>(bits | 0x8000)), -expected) << bits;
  }
}

TEST(HalfTest, RoundsToTheNearestAndHalfwayToEven) {
  for (uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = HalfToFloat(bits);
    const float high = HalfToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;  // exact in float32
    const auto even = static_cast<uint16_t>(bits + (bits & 1));
    ASSERT_EQ(FloatToHalf(middle), even) << middle;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), bits) << middle;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e6f)), bits + 1) << middle;
  }
}

TEST(HalfTest, OverflowBecomesInfinity) {
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xFC00);
}

TEST(Bf16Test, RoundsToNearestEven) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::nanf("")))));
}

}  // namespace
}  // namespace tandem
