#include "services/npu_worker/operators/number_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "services/common/base/half.h"

namespace tandem::npu {
namespace {

std::vector<uint16_t> AllPatterns() {
  std::vector<uint16_t> all(65536);
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

TEST(NumberFormatsTest, EveryHalfBecomesTheNearestBf16) {
  const std::vector<uint16_t> halves = AllPatterns();
  std::vector<uint16_t> bf16(halves.size());
  HalvesToBf16(halves, bf16);
  for (size_t i = 0; i < halves.size(); ++i) {
    const float value = HalfToFloat(halves[i]);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(bf16[i]))) << i;
    } else {
      EXPECT_EQ(bf16[i], FloatToBf16(value)) << i;
    }
  }
}

TEST(NumberFormatsTest, EveryBf16BecomesTheNearestHalf) {
  const std::vector<uint16_t> bf16 = AllPatterns();
  std::vector<uint16_t> halves(bf16.size());
  Bf16ToHalves(bf16, halves);
  for (size_t i = 0; i < bf16.size(); ++i) {
    const float value = Bf16ToFloat(bf16[i]);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(halves[i]))) << i;
    } else {
      EXPECT_EQ(halves[i], FloatToHalf(value)) << i << " " << value;
    }
  }
}

// What lies in a cache of bfloat16 is as near to the float16 that it was as it can be, and does not change
// by being copied out and in.
TEST(NumberFormatsTest, HalvesSurviveBf16AndBackUntilTheyAreStable) {
  const std::vector<uint16_t> halves = AllPatterns();
  std::vector<uint16_t> cached(halves.size()), copied(halves.size()), again(halves.size());
  HalvesToBf16(halves, cached);
  Bf16ToFiniteHalves(cached, copied);
  HalvesToBf16(copied, again);
  for (size_t i = 0; i < halves.size(); ++i) {
    const float value = HalfToFloat(halves[i]), back = HalfToFloat(copied[i]);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(back) && std::isnan(Bf16ToFloat(again[i]))) << i;
      continue;
    }
    EXPECT_EQ(again[i], cached[i]) << i << " " << value;
    EXPECT_EQ(std::isinf(back), std::isinf(value)) << i;
    if (std::isinf(value)) continue;
    EXPECT_LE(std::fabs(back - value), 0x1p-8f * std::fabs(value)) << i << " " << value;
  }
}

TEST(NumberFormatsTest, PortsInBfloat16AreCopied) {
  const std::vector<uint16_t> patterns = AllPatterns();
  std::vector<uint16_t> there(patterns.size()), converted(patterns.size());
  PortToBf16(DType::kBf16, patterns, there);
  EXPECT_EQ(there, patterns);
  Bf16ToPort(DType::kBf16, patterns, there);
  EXPECT_EQ(there, patterns);
  PortToBf16(DType::kF16, patterns, there);
  HalvesToBf16(patterns, converted);
  EXPECT_EQ(there, converted);
  Bf16ToPort(DType::kF16, patterns, there);
  Bf16ToHalves(patterns, converted);
  EXPECT_EQ(there, converted);
}

}  // namespace
}  // namespace tandem::npu
