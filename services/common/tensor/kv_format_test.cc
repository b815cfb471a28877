#include "services/common/tensor/kv_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tandem
