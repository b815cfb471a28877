#include "services/common/base/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tandem {
namespace {

TEST(SharedMemoryTest, TwoMappingsSeeTheSameBytes) {
  auto fd = CreateSharedMemory("test", 5000);
  ASSERT_TRUE(fd.ok()) << fd.status();
  auto writer = Mapping::Map(fd->get(), 5000, Mapping::Access::kReadWrite);
  ASSERT_TRUE(writer.ok()) << writer.status();
  auto reader = Mapping::Map(fd->get(), 5000, Mapping::Access::kReadOnly);
  ASSERT_TRUE(reader.ok()) << reader.status();
  writer->data()[4999] = std::byte{7};
  EXPECT_EQ(reader->data()[4999], std::byte{7});
}

TEST(SharedMemoryTest, SealedObjectsCannotBeResized) {
  auto fd = CreateSharedMemory("test", 4096);
  ASSERT_TRUE(fd.ok());
  ASSERT_TRUE(SealSize(fd->get()).ok());
  EXPECT_NE(ftruncate(fd->get(), 0), 0);
  EXPECT_NE(ftruncate(fd->get(), 8192), 0);
}

TEST(SharedMemoryTest, ReadOnlyDescriptorRefusesWritableMappings) {
  auto fd = CreateSharedMemory("test", 4096);
  ASSERT_TRUE(fd.ok());
  auto read_only = ReopenReadOnly(fd->get());
  ASSERT_TRUE(read_only.ok()) << read_only.status();
  EXPECT_FALSE(Mapping::Map(read_only->get(), 4096, Mapping::Access::kReadWrite).ok());
  EXPECT_TRUE(Mapping::Map(read_only->get(), 4096, Mapping::Access::kReadOnly).ok());
}

TEST(SharedMemoryTest, MappingPastTheEndIsRefused) {
  auto fd = CreateSharedMemory("test", 4096);
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(Mapping::Map(fd->get(), 4097, Mapping::Access::kReadOnly).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
