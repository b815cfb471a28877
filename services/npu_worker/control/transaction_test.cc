#include "services/npu_worker/control/transaction.h"

#include <gtest/gtest.h>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

// One operation of each kind.
Transaction Sample() {
  Transaction transaction({});
  const uint32_t values[] = {10, 11, 12};
  transaction.Write(TileAddress({.column = 3, .row = 0}, 0x1D214), 0x80000001);
  transaction.BlockWrite(TileAddress({.column = 7, .row = 5}, 0x400), values);
  transaction.MaskedWrite(TileAddress({.column = 1, .row = 2}, 0x32000), 1, 3);
  transaction.PatchAddress(TileAddress({.column = 3}, 0x1D004), 2, 256);
  transaction.Sync({.tile = {.column = 3}, .channel = 1, .num_columns = 2});
  return transaction;
}

TEST(TransactionTest, IsReadBackAsItWasWritten) {
  const Transaction written = Sample();
  EXPECT_EQ(written.num_operations(), 5u);
  ASSERT_OK_AND_ASSIGN(const DecodedTransaction read, ReadTransaction(written.words()));
  EXPECT_EQ(read.shape, ArrayShape());
  ASSERT_EQ(read.operations.size(), 5u);
  using Kind = Operation::Kind;
  EXPECT_EQ(read.operations[0],
            (Operation{.kind = Kind::kWrite, .address = 0x601D214, .values = {0x80000001}}));
  EXPECT_EQ(read.operations[1],
            (Operation{.kind = Kind::kBlockWrite, .address = 0xE500400, .values = {10, 11, 12}}));
  EXPECT_EQ(
      read.operations[2],
      (Operation{.kind = Kind::kMaskedWrite, .address = 0x2232000, .values = {1}, .mask = 3}));
  EXPECT_EQ(read.operations[3],
            (Operation{.kind = Kind::kPatch, .address = 0x601D004, .argument = 2, .offset = 256}));
  EXPECT_EQ(read.operations[4],
            (Operation{.kind = Kind::kSync,
                       .token = {.tile = {.column = 3}, .channel = 1, .num_columns = 2}}));
}

TEST(TransactionTest, AnEmptyOneIsAHeader) {
  const Transaction transaction({.generation = 3, .num_columns = 5});
  ASSERT_EQ(transaction.words().size(), 4u);
  EXPECT_EQ(transaction.words()[3], 16u);
  ASSERT_OK_AND_ASSIGN(const DecodedTransaction read, ReadTransaction(transaction.words()));
  EXPECT_EQ(read.shape.generation, 3u);
  EXPECT_EQ(read.shape.num_columns, 5u);
}

// Every bit of every word matters: it changes the decoded operations, or is refused.
TEST(TransactionTest, AFlippedBitIsNeverOverlooked) {
  const std::vector<uint32_t> words = Sample().words();
  const DecodedTransaction original = *ReadTransaction(words);
  int num_refused = 0;
  for (size_t word = 0; word < words.size(); ++word) {
    for (int bit = 0; bit < 32; ++bit) {
      std::vector<uint32_t> flipped = words;
      flipped[word] ^= 1u << bit;
      const auto read = ReadTransaction(flipped);
      if (!read.ok()) {
        EXPECT_THAT(read.status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("word")));
        ++num_refused;
        continue;
      }
      EXPECT_FALSE(read->operations == original.operations && read->shape == original.shape)
          << "word " << word << " bit " << bit;
    }
  }
  EXPECT_GT(num_refused, 500);
}

TEST(TransactionTest, WhatIsCutShortIsRefusedAtEveryLength) {
  const std::vector<uint32_t> words = Sample().words();
  for (size_t length = 0; length < words.size(); ++length) {
    std::vector<uint32_t> shorter(words.begin(), words.begin() + length);
    if (length > 3) shorter[3] = static_cast<uint32_t>(length * sizeof(uint32_t));
    EXPECT_FALSE(ReadTransaction(shorter).ok()) << length;
  }
}

TEST(TransactionTest, TilesOutsideTheArrayAreRefused) {
  Transaction transaction({.generation = 3, .num_columns = 5});
  transaction.Write(TileAddress({.column = 5}, 0), 0);
  EXPECT_THAT(ReadTransaction(transaction.words()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tile (5, 0)")));
}

}  // namespace
}  // namespace tandem::npu
