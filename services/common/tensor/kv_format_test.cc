#include "services/common/tensor/kv_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "services/common/base/half.h"
#include "services/common/testing/status_matchers.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TEST(KvFormatTest, PagesAreWholeVectorsAndAligned) {
  EXPECT_EQ(KvPageBytes(DType::kF16, 16, 128), 16u * 128 * 2);
  EXPECT_EQ(KvPageBytes(DType::kF16, 7, 72), 7u * 72 * 2);
  EXPECT_EQ(KvPageBytes(DType::kQ8_0, 16, 128), 16u * (128 + 8));
  EXPECT_EQ(KvPageBytes(DType::kQ8_0, 7, 64), 480u);  // 7 * 68 = 476
}

TEST(KvFormatTest, NamesAreThoseOfTheFormats) {
  EXPECT_EQ(ParseKvDType("f16").value(), DType::kF16);
  EXPECT_EQ(ParseKvDType("q8_0").value(), DType::kQ8_0);
  EXPECT_THAT(ParseKvDType("q4_0"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'q4_0'")));
}

TEST(KvFormatTest, OddHeadsStayInFloat16) {
  EXPECT_OK(CheckKvHeads(DType::kF16, 72));
  EXPECT_OK(CheckKvHeads(DType::kQ8_0, 256));
  EXPECT_THAT(CheckKvHeads(DType::kQ8_0, 72),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not 72")));
}

TEST(KvFormatTest, PagesKeepWhatTheirFormatCan) {
  constexpr uint32_t kTokens = 3, kHeadDim = 64;
  std::vector<float> values(kTokens * kHeadDim);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) * 3.0f;
  values[70] = 0.0f;
  for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
    std::vector<std::byte> page(KvPageBytes(dtype, kTokens, kHeadDim)), again(page.size());
    EncodeKvPage(dtype, values, page);
    std::vector<float> decoded(values.size());
    DecodeKvPage(dtype, page, decoded);
    // Half a step: of float16 for values below 4; of the highest magnitude / 127, whose own rounding
    // to float16 adds up to 2^-11 of a value.
    const float tolerance = dtype == DType::kF16 ? 0x1p-10f : 3.0f / 127 * 0.5f + 3.0f * 0x1p-11f;
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(decoded[i], values[i], tolerance) << i;
    EncodeKvPage(dtype, decoded, again);
    EXPECT_EQ(again, page);
  }
}

// The layout that shaders/include/kv_cache.glsl describes.
TEST(KvFormatTest, ScalesFollowAPagesBytes) {
  std::vector<float> values(2 * 64, 0.0f);
  values[64 + 33] = -254.0f;  // second vector, second block
  values[64 + 34] = 4.0f;
  std::vector<std::byte> page(KvPageBytes(DType::kQ8_0, 2, 64));
  EncodeKvPage(DType::kQ8_0, values, page);
  EXPECT_EQ(static_cast<int8_t>(page[64 + 33]), -127);
  EXPECT_EQ(static_cast<int8_t>(page[64 + 34]), 2);
  uint16_t scale = 0;
  std::memcpy(&scale, page.data() + 2 * 64 + 3 * sizeof(uint16_t), sizeof(scale));
  EXPECT_EQ(HalfToFloat(scale), 2.0f);
}

}  // namespace
}  // namespace tandem
