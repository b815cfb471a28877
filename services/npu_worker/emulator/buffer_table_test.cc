#include "services/npu_worker/emulator/buffer_table.h"

#include <gtest/gtest.h>

#include <array>

#include "services/common/base/shared_memory.h"
#include "services/common/testing/status_matchers.h"

namespace tandem::npu::emulator {
namespace {

class BufferTableTest : public ::testing::Test {
 protected:
  AddressSpace space_;
  BufferTable table_{space_};
};

TEST_F(BufferTableTest, BuffersHaveAddressesOfTheirOwnWithGapsBetween) {
  ASSERT_OK_AND_ASSIGN(const Handle a, table_.Allocate(100, 0, true));
  ASSERT_OK_AND_ASSIGN(const Handle b, table_.Allocate(0x10000, 0, false));
  ASSERT_OK_AND_ASSIGN(const Handle c, table_.Allocate(1, 0, false));
  const uint64_t end_of_b = table_.Find(b)->address + 0x10000;
  EXPECT_GT(table_.Find(b)->address, table_.Find(a)->address + 100);
  EXPECT_GT(table_.Find(c)->address, end_of_b);
  const AddressSpace::View view(space_);
  EXPECT_FALSE(view.Buffer(end_of_b).ok());
}

TEST_F(BufferTableTest, ExportedMemoryIsSharedWithItsImport) {
  ASSERT_OK_AND_ASSIGN(const Handle a, table_.Allocate(4096, 0, true));
  ASSERT_OK_AND_ASSIGN(const int fd, table_.Export(a));
  const UniqueFd owned(fd);
  ASSERT_OK_AND_ASSIGN(const Handle b, table_.Import(fd, 0));
  table_.Find(a)->host[7] = std::byte{9};
  EXPECT_EQ(table_.Find(b)->host[7], std::byte{9});
}

TEST_F(BufferTableTest, ReadOnlyMemoryCanBeImported) {
  ASSERT_OK_AND_ASSIGN(const UniqueFd fd, CreateSharedMemory("weights", 8192));
  ASSERT_OK_AND_ASSIGN(const UniqueFd read_only, ReopenReadOnly(fd.get()));
  ASSERT_OK_AND_ASSIGN(const Handle handle, table_.Import(read_only.get(), 0));
  EXPECT_EQ(table_.Find(handle)->bytes, 8192u);
}

TEST_F(BufferTableTest, AFreedBufferIsGone) {
  std::array<std::byte, 64> memory{};
  ASSERT_OK_AND_ASSIGN(const Handle handle, table_.Wrap(memory.data(), memory.size(), 0));
  const uint64_t address = table_.Find(handle)->address;
  table_.Free(handle);
  table_.Free(handle);
  EXPECT_EQ(table_.Find(handle), nullptr);
  const AddressSpace::View view(space_);
  EXPECT_FALSE(view.Buffer(address).ok());
}

TEST_F(BufferTableTest, RefusesNonsense) {
  EXPECT_FALSE(table_.Allocate(0, 0, true).ok());
  EXPECT_FALSE(table_.Allocate(~uint64_t{0}, 0, true).ok());
  EXPECT_FALSE(table_.Import(-1, 0).ok());
  EXPECT_FALSE(table_.Export(77).ok());
  EXPECT_EQ(table_.Find(0xFFFFFFFF), nullptr);
}

}  // namespace
}  // namespace tandem::npu::emulator
