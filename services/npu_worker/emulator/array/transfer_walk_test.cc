#include "services/npu_worker/emulator/array/transfer_walk.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu::emulator {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

// The loops of shim_descriptor.h, word by word.
std::vector<uint64_t> Offsets(const ShimTransfer& transfer, uint32_t repetition) {
  const uint64_t size_0 = transfer.size[0] == 0 ? ~0u : transfer.size[0];
  const uint64_t size_1 = transfer.size[1] == 0 ? ~0u : transfer.size[1];
  std::vector<uint64_t> offsets;
  for (uint64_t d2 = 0;; ++d2) {
    for (uint64_t d1 = 0; d1 < size_1; ++d1) {
      for (uint64_t d0 = 0; d0 < size_0; ++d0) {
        if (offsets.size() == transfer.length) return offsets;
        offsets.push_back(uint64_t{repetition} * transfer.repeat_step + d2 * transfer.step[2] +
                          d1 * transfer.step[1] + d0 * transfer.step[0]);
      }
    }
  }
}

std::span<std::byte> AsBytes(std::vector<uint32_t>& words) {
  return std::as_writable_bytes(std::span(words));
}

class RandomTransfers {
 public:
  ShimTransfer Next() {
    const auto up_to = [this](uint32_t max) { return static_cast<uint32_t>(random_() % max + 1); };
    return {.length = up_to(60),
            .size = {up_to(6) - 1, up_to(5) - 1},
            .step = {up_to(2), up_to(9), up_to(30)},
            .repeat_step = up_to(20),
            .num_repeats = 3};
  }

 private:
  std::mt19937 random_{5};
};

TEST(TransferWalkTest, ReadsTheWordsOfTheLoopsInAnyPieces) {
  RandomTransfers transfers;
  std::vector<uint32_t> memory(3000);
  std::iota(memory.begin(), memory.end(), 0);
  for (int i = 0; i < 500; ++i) {
    const ShimTransfer transfer = transfers.Next();
    const uint32_t repetition = i % 3;
    ASSERT_OK_AND_ASSIGN(TransferWalk walk,
                         TransferWalk::Create(transfer, repetition, AsBytes(memory)));
    std::vector<uint32_t> words(transfer.length);
    const size_t first = transfer.length / 3;
    walk.Read(std::span(words).first(first));
    EXPECT_EQ(walk.remaining(), transfer.length - first);
    walk.Read(std::span(words).subspan(first));
    const std::vector<uint64_t> expected = Offsets(transfer, repetition);
    ASSERT_TRUE(std::equal(words.begin(), words.end(), expected.begin(), expected.end())) << i;
  }
}

TEST(TransferWalkTest, WritesThereAndNowhereElse) {
  RandomTransfers transfers;
  for (int i = 0; i < 500; ++i) {
    const ShimTransfer transfer = transfers.Next();
    std::vector<uint32_t> memory(3000, ~0u);
    ASSERT_OK_AND_ASSIGN(TransferWalk walk, TransferWalk::Create(transfer, 1, AsBytes(memory)));
    std::vector<uint32_t> words(transfer.length);
    std::iota(words.begin(), words.end(), 0);
    walk.Write(words);
    std::vector<uint32_t> expected(3000, ~0u);
    const std::vector<uint64_t> offsets = Offsets(transfer, 1);
    for (size_t word = 0; word < offsets.size(); ++word) {
      expected[offsets[word]] = static_cast<uint32_t>(word);
    }
    ASSERT_EQ(memory, expected) << i;
  }
}

// The bound is exact: the last word may be the last of the buffer, and not one byte further.
TEST(TransferWalkTest, ATransferThatLeavesItsBufferByOneWordIsRefused) {
  RandomTransfers transfers;
  for (int i = 0; i < 500; ++i) {
    const ShimTransfer transfer = transfers.Next();
    const uint32_t repetition = i % 3;
    const std::vector<uint64_t> offsets = Offsets(transfer, repetition);
    const uint64_t last = *std::max_element(offsets.begin(), offsets.end());
    std::vector<uint32_t> memory(last + 1);
    EXPECT_OK(TransferWalk::Create(transfer, repetition, AsBytes(memory)).status()) << i;
    EXPECT_THAT(TransferWalk::Create(transfer, repetition,
                                     AsBytes(memory).first(AsBytes(memory).size() - 1))
                    .status(),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("the buffer")))
        << i;
  }
}

}  // namespace
}  // namespace tandem::npu::emulator
