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

}  // namespace
}  // namespace tandem::npu
