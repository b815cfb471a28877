#include "services/npu_worker/control/shim_descriptor.h"

#include <gtest/gtest.h>

#include <random>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TEST(ShimDescriptorTest, FieldsAreWhereTheRegistersHaveThem) {
  const ShimTransfer transfer = {.length = 0x1234,
                                 .size = {32, 64},
                                 .step = {1, 512, 65536},
                                 .repeat_step = 4096,
                                 .num_repeats = 3};
  ASSERT_OK_AND_ASSIGN(const auto words, EncodeShimTransfer(transfer));
  EXPECT_EQ(words[0], 0x1234u);
  EXPECT_EQ(words[1], 0u) << "patched";
  EXPECT_EQ(words[2], 0u) << "patched";
  EXPECT_EQ(words[3], 32u << 20);
  EXPECT_EQ(words[4], 2u << 30 | 64u << 20 | 511u);
  EXPECT_EQ(words[5], 2u << 24 | 65535u) << "AxCache 2";
  EXPECT_EQ(words[6], 2u << 20 | 4095u);
  EXPECT_EQ(words[7], 1u << 25);
}

TEST(ShimDescriptorTest, RandomTransfersAreReadBack) {
  std::mt19937 random(7);
  const auto up_to = [&random](uint32_t max) { return static_cast<uint32_t>(random() % max + 1); };
  for (int i = 0; i < 1000; ++i) {
    const ShimTransfer transfer = {
        .length = up_to(~0u - 1),
        .size = {up_to(1024) - 1, up_to(1024) - 1},
        .step = {up_to(1 << 20), up_to(1 << 20), up_to(1 << 20)},
        .repeat_step = up_to(1 << 20),
        .num_repeats = up_to(64),
        .next = i % 2 == 0 ? std::nullopt : std::optional(up_to(16) - 1)};
    ASSERT_OK_AND_ASSIGN(const auto words, EncodeShimTransfer(transfer));
    ASSERT_OK_AND_ASSIGN(const ShimTransfer read, DecodeShimTransfer(words));
    ASSERT_EQ(read, transfer) << i;
  }
}

TEST(ShimDescriptorTest, FieldsThatDoNotFitAreRefused) {
  const auto refuses = [](const ShimTransfer& transfer, const char* text) {
    EXPECT_THAT(EncodeShimTransfer(transfer),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refuses({.length = 0}, "0 words");
  refuses({.length = 1, .size = {1024, 0}}, "size 1024");
  refuses({.length = 1, .step = {1, (1 << 20) + 1, 1}}, "step of 1048577");
  refuses({.length = 1, .step = {0, 1, 1}}, "step of 0");
  refuses({.length = 1, .num_repeats = 65}, "65 times");
  refuses({.length = 1, .num_repeats = 0}, "0 times");
  refuses({.length = 1, .next = 16}, "descriptor 16 is next");
}

TEST(ShimDescriptorTest, OtherBitsAreNotUnderstood) {
  auto words = *EncodeShimTransfer({.length = 8});
  words[7] |= 1u << 31;
  EXPECT_THAT(DecodeShimTransfer(words),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("word 7")));
}

TEST(ShimDescriptorTest, ATaskIsItsDescriptorsTheirPatchesAndAnEntryInTheQueue) {
  const ShimChannel channel = {.column = 2, .direction = DmaDirection::kFromTile, .channel = 1};
  const ShimTransfer transfer = {.length = 256, .num_repeats = 2};
  const ShimPart parts[] = {{.descriptor = 5, .argument = 3, .offset = 64, .transfer = transfer},
                            {.descriptor = 9, .argument = 1, .transfer = transfer}};
  Transaction transaction({});
  ASSERT_OK(StartShimTask(channel, parts, /*with_token=*/true, transaction));
  ASSERT_OK_AND_ASSIGN(const DecodedTransaction read, ReadTransaction(transaction.words()));
  ASSERT_EQ(read.operations.size(), 5u);
  EXPECT_EQ(read.operations[0].address, 2u << 25 | 0x1D0A0u);
  ShimTransfer first = transfer;
  first.next = 9;
  EXPECT_EQ(*DecodeShimTransfer(read.operations[0].values), first);
  EXPECT_EQ(read.operations[0].values[7], 9u << 27 | 1u << 26 | 1u << 25);
  EXPECT_EQ(read.operations[1].address, 2u << 25 | 0x1D0A4u);
  EXPECT_EQ(read.operations[1].argument, 3u);
  EXPECT_EQ(read.operations[1].offset, 64u);
  EXPECT_EQ(read.operations[2].address, 2u << 25 | 0x1D120u);
  EXPECT_EQ(*DecodeShimTransfer(read.operations[2].values), transfer);
  EXPECT_EQ(read.operations[4].address, 2u << 25 | 0x1D20Cu);
  EXPECT_EQ(read.operations[4].values[0], 1u << 31 | 1u << 16 | 5u);
}

TEST(ShimDescriptorTest, TokensAreRoutedInTheControlRegisterBeforeTheQueue) {
  Transaction transaction({});
  RouteTokens({.column = 3, .direction = DmaDirection::kToTile, .channel = 1}, transaction);
  ASSERT_OK_AND_ASSIGN(const DecodedTransaction read, ReadTransaction(transaction.words()));
  ASSERT_EQ(read.operations.size(), 1u);
  EXPECT_EQ(read.operations[0].kind, Operation::Kind::kMaskedWrite);
  EXPECT_EQ(read.operations[0].address, 3u << 25 | 0x1D218u);
  EXPECT_EQ(read.operations[0].values[0], 0xF00u);
  EXPECT_EQ(read.operations[0].mask, 0x1F00u);
}

TEST(ShimDescriptorTest, ATaskRepeatsAllItsDescriptorsAlike) {
  Transaction transaction({});
  const ShimPart parts[] = {{.transfer = {.length = 1, .num_repeats = 2}},
                            {.descriptor = 1, .transfer = {.length = 1}}};
  EXPECT_THAT(StartShimTask({}, parts, false, transaction),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2 and 1 repeats")));
  EXPECT_THAT(StartShimTask({}, {}, false, transaction),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no descriptors")));
}

}  // namespace
}  // namespace tandem::npu
