#include "services/npu_worker/emulator/address_space.h"

#include <gtest/gtest.h>

#include <array>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu::emulator {
namespace {

using tandem::testing::HasCode;

class AddressSpaceTest : public ::testing::Test {
 protected:
  AddressSpace space_;
  std::array<std::byte, 64> a_{}, b_{};
};

TEST_F(AddressSpaceTest, TranslatesUpToTheEndOfABuffer) {
  ASSERT_OK(space_.Add(0x1000, a_.data(), a_.size()));
  const AddressSpace::View view(space_);
  ASSERT_OK_AND_ASSIGN(const auto whole, view.Buffer(0x1000));
  EXPECT_EQ(whole.data(), a_.data());
  EXPECT_EQ(whole.size(), a_.size());
  ASSERT_OK_AND_ASSIGN(const auto last, view.Buffer(0x1000 + 63));
  EXPECT_EQ(last.size(), 1u);
  EXPECT_THAT(view.Buffer(0x1000 + 64), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(view.Buffer(0xFFF), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(view.Buffer(0), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(view.Buffer(~uint64_t{0}), HasCode(absl::StatusCode::kOutOfRange));
}

TEST_F(AddressSpaceTest, NeighboursAreKeptApart) {
  ASSERT_OK(space_.Add(0x1000, a_.data(), a_.size()));
  ASSERT_OK(space_.Add(0x1000 + 64, b_.data(), b_.size()));
  {
    const AddressSpace::View view(space_);
    ASSERT_OK_AND_ASSIGN(const auto first, view.Buffer(0x1000 + 60));
    EXPECT_EQ(first.size(), 4u);
  }
  space_.Remove(0x1000);
  const AddressSpace::View view(space_);
  EXPECT_THAT(view.Buffer(0x1000), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_TRUE(view.Buffer(0x1000 + 64).ok());
}

TEST_F(AddressSpaceTest, RefusesOverlapsAndEmptyAndWrappingBuffers) {
  ASSERT_OK(space_.Add(0x1000, a_.data(), a_.size()));
  for (const uint64_t address : {0x1000u, 0x0FFFu, 0x103Fu, 0x1001u}) {
    EXPECT_FALSE(space_.Add(address, b_.data(), b_.size()).ok()) << address;
  }
  EXPECT_FALSE(space_.Add(0x2000, b_.data(), 0).ok());
  EXPECT_FALSE(space_.Add(0x2000, nullptr, 1).ok());
  EXPECT_FALSE(space_.Add(~uint64_t{0} - 3, b_.data(), b_.size()).ok());
}

TEST_F(AddressSpaceTest, WithinRefusesWhatOverflows) {
  EXPECT_TRUE(Within(a_, 60, 4, "part").ok());
  EXPECT_TRUE(Within(a_, 64, 0, "part").ok());
  EXPECT_FALSE(Within(a_, 61, 4, "part").ok());
  EXPECT_FALSE(Within(a_, ~uint64_t{0}, 4, "part").ok());
  EXPECT_FALSE(Within(a_, 4, ~uint64_t{0}, "part").ok());
}

}  // namespace
}  // namespace tandem::npu::emulator
