#include "services/npu_worker/emulator/array/shim_dma.h"

#include <gtest/gtest.h>

#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/emulator/array/array_test_support.h"
#include "services/npu_worker/emulator/array/streams.h"

namespace tandem::npu::emulator {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

class ShimDmaTest : public ::testing::Test {
 protected:
  ShimDmaTest() {
    dma_.SetMemory(&view_);
    RouteTokensTo(kTokenController);
  }
  void RouteTokensTo(uint32_t controller) {
    EXPECT_OK(dma_.WriteRegister(ShimControlAddress(0, DmaDirection::kToTile, 0),
                                 controller << kTokenControllerShift));
  }
  // Task `value` of a descriptor over the memory, in MM2S channel 0.
  absl::Status Start(uint32_t descriptor, const ShimTransfer& transfer, uint32_t value) {
    const auto words = *EncodeShimTransfer(transfer);
    const uint32_t address = ShimDescriptorAddress(0, descriptor);
    for (uint32_t i = 0; i < words.size(); ++i) {
      if (auto status = dma_.WriteRegister(address + 4 * i, words[i]); !status.ok()) return status;
    }
    if (auto status = dma_.Patch(address + 4, address_); !status.ok()) return status;
    return dma_.WriteRegister(ShimQueueAddress(0, DmaDirection::kToTile, 0), value);
  }
  uint64_t Remaining() const { return dma_.Remaining(DmaDirection::kToTile, 0); }
  std::vector<uint32_t> Read(size_t count) {
    std::vector<uint32_t> words(count);
    dma_.Read(0, words);
    return words;
  }

  std::vector<uint32_t> words_ = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  DeviceMemory memory_;
  uint64_t address_ = memory_.Add(words_);
  AddressSpace::View view_{memory_.space()};
  ShimDma dma_{0};
};

TEST_F(ShimDmaTest, TokensComeWhenTheirTaskHasMovedItsLastWord) {
  ASSERT_OK(Start(0, {.length = 4}, ShimTask(0, 1, true)));
  ASSERT_OK(Start(1, {.length = 2}, ShimTask(1, 1, false)));
  EXPECT_EQ(Remaining(), 6u);
  EXPECT_THAT(Read(3), ::testing::ElementsAre(0, 1, 2));
  EXPECT_FALSE(dma_.TakeToken(DmaDirection::kToTile, 0));
  EXPECT_THAT(Read(2), ::testing::ElementsAre(3, 0));
  EXPECT_TRUE(dma_.TakeToken(DmaDirection::kToTile, 0));
  EXPECT_FALSE(dma_.TakeToken(DmaDirection::kToTile, 0)) << "once";
  EXPECT_FALSE(dma_.CheckIdle().ok());
  Read(1);
  EXPECT_OK(dma_.CheckIdle());
}

TEST_F(ShimDmaTest, ATokenThatGoesToAnotherControllerIsRefused) {
  RouteTokensTo(0);
  EXPECT_THAT(Start(0, {.length = 4}, ShimTask(0, 1, true)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("controller 0")));
  EXPECT_OK(Start(0, {.length = 4}, ShimTask(0, 1, false))) << "no token, no controller";
}

TEST_F(ShimDmaTest, ADescriptorGoesOnWithItsRepetitionsInTheNextTask) {
  const ShimTransfer transfer = {.length = 1, .repeat_step = 3, .num_repeats = 3};
  ASSERT_OK(Start(0, transfer, ShimTask(0, 2, false)));
  EXPECT_THAT(Read(2), ::testing::ElementsAre(0, 3));
  ASSERT_OK(
      dma_.WriteRegister(ShimQueueAddress(0, DmaDirection::kToTile, 0), ShimTask(0, 2, false)));
  EXPECT_THAT(Read(2), ::testing::ElementsAre(6, 0));
}

TEST_F(ShimDmaTest, MalformedTasksAndDescriptorsAreRefused) {
  EXPECT_THAT(Start(0, {.length = 4}, 1u << 30), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Start(0, {.length = 4, .next = 0}, 0), HasCode(absl::StatusCode::kInvalidArgument))
      << "a chain without end";
  EXPECT_THAT(Start(0, {.length = 11}, 0), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_EQ(Remaining(), 0u);
  // A refused task leaves its descriptor free.
  EXPECT_OK(Start(0, {.length = 10}, 0));
}

TEST_F(ShimDmaTest, ABroadcastGivesEachCoreEveryWordAndWaitsForTheSlowest) {
  ASSERT_OK(Start(0, {.length = 10}, ShimTask(0, 1, true)));
  Broadcast broadcast(dma_, 0, 2, /*room=*/6);
  std::vector<uint32_t> words(4);
  ASSERT_TRUE(broadcast.Take(0, words));
  EXPECT_THAT(words, ::testing::ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(broadcast.Take(0, words)) << "the other core's four fill the room";
  ASSERT_TRUE(broadcast.Take(1, words));
  EXPECT_THAT(words, ::testing::ElementsAre(0, 1, 2, 3));
  ASSERT_TRUE(broadcast.Take(1, words));
  EXPECT_THAT(words, ::testing::ElementsAre(4, 5, 6, 7));
  ASSERT_TRUE(broadcast.Take(0, words));
  EXPECT_THAT(words, ::testing::ElementsAre(4, 5, 6, 7));
  EXPECT_FALSE(broadcast.Take(0, words)) << "two are left";
  EXPECT_EQ(Remaining(), 0u) << "and wait in the memory tile";
  ASSERT_OK(Start(1, {.length = 2}, ShimTask(1, 1, true)));
  ASSERT_TRUE(broadcast.Take(0, words));
  EXPECT_THAT(words, ::testing::ElementsAre(8, 9, 0, 1));
}

}  // namespace
}  // namespace tandem::npu::emulator
