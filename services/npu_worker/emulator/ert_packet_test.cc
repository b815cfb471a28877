#include "services/npu_worker/emulator/ert_packet.h"

#include <gtest/gtest.h>

#include <vector>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu::emulator {
namespace {

using tandem::testing::HasCode;

// A start packet with one CU mask, as XRT writes it for a kernel with `num_buffers` data buffers.
std::vector<uint32_t> StartPacket(uint32_t num_buffers, uint32_t extra_masks = 0) {
  std::vector<uint32_t> words = {0};
  words.insert(words.end(), 1 + extra_masks, 1);
  words.insert(words.end(), {3, 0, 0x1000, 2, 24});  // opcode, instruction address, count
  for (uint32_t i = 0; i < num_buffers; ++i) words.insert(words.end(), {0x100 * i, i});
  words[0] = 1 | extra_masks << 10 | static_cast<uint32_t>(words.size() - 1) << 12;
  return words;
}

TEST(ErtPacketTest, DecodesARunOfAnMlirAieKernel) {
  for (const uint32_t extra_masks : {0u, 3u}) {
    ASSERT_OK_AND_ASSIGN(const Invocation run, DecodeStart(StartPacket(5, extra_masks)));
    EXPECT_EQ(run.cu, 0u);
    EXPECT_EQ(run.opcode, 3u);
    EXPECT_EQ(run.instruction_address, 0x200001000u);
    EXPECT_EQ(run.num_instruction_words, 24u);
    ASSERT_EQ(run.num_buffers, 5);
    EXPECT_EQ(run.buffers[4], 0x400000400u);
  }
}

// Instructions of 9680 bytes; properties before the opcode.
std::vector<uint32_t> StartNpuPacket(uint32_t num_properties) {
  std::vector<uint32_t> words = {0, 4, 0x1000, 2, 9680, num_properties};
  words.insert(words.end(), num_properties, 77);
  words.insert(words.end(), {3, 0});
  words[0] = 1 | 20u << 23 | static_cast<uint32_t>(words.size() - 1) << 12;
  return words;
}

TEST(ErtPacketTest, DecodesARunWhoseAddressesAreWritten) {
  for (const uint32_t num_properties : {0u, 3u}) {
    std::vector<uint32_t> words = StartNpuPacket(num_properties);
    ASSERT_OK_AND_ASSIGN(const Invocation run, DecodeStart(words));
    EXPECT_TRUE(run.has_addresses);
    EXPECT_EQ(run.cu, 2u);
    EXPECT_EQ(run.opcode, 3u);
    EXPECT_EQ(run.instruction_address, 0x200001000u);
    EXPECT_EQ(run.num_instruction_words, 2420u);
    EXPECT_EQ(run.num_buffers, 0);
    EXPECT_EQ(ChainSlotBytes(words), 52 + 8 + 4 * num_properties);
    words[5] += 1;
    EXPECT_THAT(DecodeStart(words), HasCode(absl::StatusCode::kInvalidArgument)) << "no opcode";
    words[5] = 0xFFFFFFFF;
    EXPECT_THAT(DecodeStart(words), HasCode(absl::StatusCode::kInvalidArgument));
    words[5] = num_properties;
    words[4] = 9679;
    EXPECT_THAT(DecodeStart(words), HasCode(absl::StatusCode::kInvalidArgument));
  }
}

TEST(ErtPacketTest, TheFirstBitOfTheMasksIsTheCu) {
  std::vector<uint32_t> words = StartPacket(2, 1);
  words[1] = 1u << 6;
  ASSERT_OK_AND_ASSIGN(const Invocation first, DecodeStart(words));
  EXPECT_EQ(first.cu, 6u);
  words[1] = 0;
  words[2] = 1u << 3;
  ASSERT_OK_AND_ASSIGN(const Invocation second, DecodeStart(words));
  EXPECT_EQ(second.cu, 35u);
  words[2] = 0;
  EXPECT_THAT(DecodeStart(words), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(ErtPacketTest, TakesAsManyBuffersAsItHasRoomFor) {
  ASSERT_OK_AND_ASSIGN(const Invocation none, DecodeStart(StartPacket(0)));
  EXPECT_EQ(none.num_buffers, 0);
  ASSERT_OK_AND_ASSIGN(const Invocation many, DecodeStart(StartPacket(20)));
  EXPECT_EQ(many.num_buffers, kMaxDataBuffers);
}

TEST(ErtPacketTest, RefusesPacketsThatAreShortOrLongerThanTheirBuffer) {
  EXPECT_THAT(DecodeStart({}), HasCode(absl::StatusCode::kInvalidArgument));
  std::vector<uint32_t> words = StartPacket(5);
  words.pop_back();
  EXPECT_THAT(DecodeStart(words), HasCode(absl::StatusCode::kInvalidArgument));
  for (uint32_t count = 0; count < 6; ++count) {
    words = StartPacket(5);
    words[0] = 1 | count << 12;
    EXPECT_THAT(DecodeStart(words), HasCode(absl::StatusCode::kInvalidArgument)) << count;
  }
}

TEST(ErtPacketTest, RefusesOtherPackets) {
  std::vector<uint32_t> words = StartPacket(5);
  words[0] |= 7u << 23;
  EXPECT_THAT(DecodeStart(words), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(ErtPacketTest, StateReplacesTheLowBitsAlone) {
  uint32_t header = 0x12345671u;
  SetState(&header, CommandState::kError);
  EXPECT_EQ(header, 0x12345675u);
}

}  // namespace
}  // namespace tandem::npu::emulator
