#include "services/npu_worker/emulator/driver/columns.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu::emulator {
namespace {

uint32_t FirstOf(Columns& columns, uint32_t width) {
  uint32_t first = 99;
  EXPECT_EQ(columns.Acquire(width, &first), 0);
  return first;
}

TEST(ColumnsTest, TheSeventhContextOfNpu1IsRefused) {
  Columns columns(*FindProfile("npu1"));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(FirstOf(columns, 4), 1u) << "they share the partition";
  uint32_t first = 0;
  EXPECT_EQ(columns.Acquire(4, &first), EINVAL);
  columns.Release(1, 4);
  EXPECT_EQ(columns.Acquire(4, &first), 0);
}

TEST(ColumnsTest, TheSeventeenthContextOfNpu4IsRefused) {
  Columns columns(*FindProfile("npu4"));
  for (int i = 0; i < 16; ++i) FirstOf(columns, 8);
  uint32_t first = 0;
  EXPECT_EQ(columns.Acquire(8, &first), EINVAL);
}

TEST(ColumnsTest, Npu4PlacesPartitionsAtMultiplesOfTheirWidth) {
  Columns columns(*FindProfile("npu4"));
  EXPECT_EQ(FirstOf(columns, 1), 0u);
  EXPECT_EQ(FirstOf(columns, 4), 4u);
  EXPECT_EQ(FirstOf(columns, 2), 2u);
  uint32_t first = 0;
  EXPECT_EQ(columns.Acquire(8, &first), ENODEV) << "no such partition can be shared";
  EXPECT_EQ(FirstOf(columns, 4), 4u) << "shared";
}

TEST(ColumnsTest, WidthsOutsideTheArrayAreRefused) {
  Columns columns(*FindProfile("npu1"));
  uint32_t first = 0;
  EXPECT_EQ(columns.Acquire(0, &first), EINVAL);
  EXPECT_EQ(columns.Acquire(5, &first), EINVAL) << "the first column is not for contexts";
  EXPECT_EQ(columns.num_contexts(), 0u);
}

TEST(DriverProfileTest, OtherNamesAreRefused) {
  EXPECT_THAT(FindProfile("npu9"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("npu9")));
}

}  // namespace
}  // namespace tandem::npu::emulator
