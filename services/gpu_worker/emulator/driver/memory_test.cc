#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>
#include <vector>

#include "services/gpu_worker/emulator/driver/address_space.h"
#include "services/gpu_worker/emulator/driver/backing_memory.h"
#include "services/gpu_worker/emulator/driver/buffer_table.h"
#include "services/gpu_worker/emulator/driver/range_allocator.h"
#include "services/gpu_worker/emulator/driver/shared_memory.h"

namespace tandem::rdna {
namespace {

TEST(RangeAllocatorTest, AlignsAndMergesWhatIsFreed) {
  RangeAllocator ranges(100, 1000);
  const auto a = ranges.Allocate(10, 64), b = ranges.Allocate(100, 1), c = ranges.Allocate(1, 512);
  EXPECT_EQ(a, 128u);
  EXPECT_EQ(b, 138u);
  EXPECT_EQ(c, 512u);
  EXPECT_EQ(ranges.Allocate(800, 1), std::nullopt);
  EXPECT_EQ(ranges.Allocate(0, 1), std::nullopt);
  EXPECT_FALSE(ranges.AllocateAt(137, 2));
  EXPECT_TRUE(ranges.AllocateAt(100, 28));
  ranges.Free(138, 100);
  ranges.Free(100, 28);
  ranges.Free(512, 1);
  ranges.Free(128, 10);
  EXPECT_EQ(ranges.free_bytes(), 900u);
  EXPECT_EQ(ranges.Allocate(900, 1), 100u);
}

TEST(AddressSpaceTest, FindsWhatIsMappedAndNothingElse) {
  std::array<std::byte, 64> memory = {};
  AddressSpace space;
  ASSERT_TRUE(space.Map(0x1000, 32, memory.data()));
  ASSERT_TRUE(space.Map(0x1020, 32, memory.data() + 32));
  EXPECT_EQ(space.Find(0x1000, 32), memory.data());
  EXPECT_EQ(space.Find(0x103f, 1), memory.data() + 63);
  EXPECT_EQ(space.Find(0x0fff, 1), nullptr);
  EXPECT_EQ(space.Find(0x1040, 1), nullptr);
  EXPECT_EQ(space.Find(0x103f, 2), nullptr);
  EXPECT_EQ(space.Find(0x101c, 8), nullptr);  // across two mappings
  EXPECT_EQ(space.Find(0x1000, ~uint64_t{0}), nullptr);
  EXPECT_EQ(space.Find(0, 0), nullptr);
}

TEST(AddressSpaceTest, IgnoresTheSignOfAnAddress) {
  std::array<std::byte, 16> memory = {};
  AddressSpace space;
  ASSERT_TRUE(space.Map(0xffff800000001000, 16, memory.data()));
  EXPECT_EQ(space.Find(0x0000800000001008, 8), memory.data() + 8);
  EXPECT_EQ(space.Find(0x0000000000001008, 8), nullptr);
}

TEST(AddressSpaceTest, RefusesOverlapsAndEmptyRanges) {
  std::array<std::byte, 64> memory = {};
  AddressSpace space;
  ASSERT_TRUE(space.Map(0x1000, 32, memory.data()));
  EXPECT_FALSE(space.Map(0x101f, 4, memory.data()));
  EXPECT_FALSE(space.Map(0x0ff0, 17, memory.data()));
  EXPECT_FALSE(space.Map(0x0ff0, 64, memory.data()));
  EXPECT_FALSE(space.Map(0x2000, 0, memory.data()));
  EXPECT_FALSE(space.Map(0xffffffffffff, 2, memory.data()));
  EXPECT_EQ(space.mapped_bytes(), 32u);
}

TEST(AddressSpaceTest, KeepsTheRestOfMappingsThatAreCut) {
  std::array<std::byte, 64> memory = {};
  AddressSpace space;
  ASSERT_TRUE(space.Map(0x1000, 64, memory.data()));
  EXPECT_NE(space.Find(0x1010, 1), nullptr);  // now this thread remembers it
  space.Unmap(0x1010, 16);
  EXPECT_EQ(space.Find(0x1010, 1), nullptr);
  EXPECT_EQ(space.Find(0x100f, 1), memory.data() + 15);
  EXPECT_EQ(space.Find(0x1020, 32), memory.data() + 32);
  space.Unmap(0, ~uint64_t{0});
  EXPECT_EQ(space.mapped_bytes(), 0u);
  EXPECT_EQ(space.Find(0x1020, 1), nullptr);
}

TEST(AddressSpaceTest, TwoSpacesOfOneThreadDoNotMix) {
  std::array<std::byte, 2> memory = {};
  AddressSpace a, b;
  ASSERT_TRUE(a.Map(0x1000, 1, &memory[0]));
  ASSERT_TRUE(b.Map(0x1000, 1, &memory[1]));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(a.Find(0x1000, 1), &memory[0]);
    EXPECT_EQ(b.Find(0x1000, 1), &memory[1]);
  }
}

TEST(AddressSpaceTest, ThreadsFindWhileAnotherMaps) {
  std::vector<std::byte> memory(1 << 16);
  AddressSpace space;
  ASSERT_TRUE(space.Map(0x10000, 4096, memory.data()));
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      for (uint64_t j = 0; j < 20'000; ++j) {
        ASSERT_EQ(space.Find(0x10000 + j % 4096, 1), memory.data() + j % 4096);
      }
    });
  }
  for (uint64_t j = 0; j < 500; ++j) {
    ASSERT_TRUE(space.Map(0x40000, 4096, memory.data() + 4096));
    space.Unmap(0x40000, 4096);
  }
  for (std::thread& reader : readers) reader.join();
}

TEST(BufferTableTest, FillsVramFirstAndThenTheSystemsMemory) {
  BackingMemory backing(1 << 20);
  BufferTable buffers(backing, 16 << 10, 32 << 10);
  const uint32_t a = buffers.Create(12 << 10, 0, true, true, 6, 0);
  const uint32_t b = buffers.Create(8 << 10, 0, true, true, 6, 0);
  ASSERT_NE(a, 0u);
  ASSERT_NE(b, 0u);
  EXPECT_EQ(buffers.Find(a)->domain, Domain::kVram);
  EXPECT_EQ(buffers.Find(b)->domain, Domain::kGtt);
  EXPECT_EQ(buffers.Create(8 << 10, 0, true, false, 4, 0), 0u);  // VRAM alone is full
  EXPECT_EQ(buffers.Create(28 << 10, 0, true, true, 6, 0), 0u);  // and this is too much
  EXPECT_EQ(buffers.Create(0, 0, true, true, 6, 0), 0u);
  EXPECT_EQ(buffers.Create(4096, 3 << 12, true, true, 6, 0), 0u);  // no power of two
  EXPECT_EQ(buffers.usage().vram, 12u << 10);
  EXPECT_EQ(buffers.usage().gtt, 8u << 10);
  EXPECT_TRUE(buffers.Close(a));
  EXPECT_FALSE(buffers.Close(a));
  EXPECT_EQ(buffers.usage().vram, 0u);
  EXPECT_FALSE(buffers.Find(a).has_value());
}

TEST(BufferTableTest, GivesZeroedAlignedMemoryAndTakesItBack) {
  BackingMemory backing(1 << 20);
  BufferTable buffers(backing, 64 << 10, 0);
  for (int round = 0; round < 40; ++round) {
    const uint32_t handle = buffers.Create(5000, 16 << 10, true, false, 4, 0);
    ASSERT_NE(handle, 0u);
    const BufferObject buffer = *buffers.Find(handle);
    EXPECT_EQ(buffer.bytes, 8192u);
    EXPECT_EQ(buffer.offset % (16 << 10), 0u);
    for (uint64_t i = 0; i < buffer.bytes; ++i) ASSERT_EQ(buffer.host[i], std::byte{0});
    buffer.host[0] = buffer.host[8191] = std::byte{1};
    ASSERT_TRUE(buffers.Close(handle));
  }
}

TEST(BufferTableTest, WrapsTheCallersMemory) {
  BackingMemory backing(1 << 20);
  BufferTable buffers(backing, 0, 8192);
  std::vector<std::byte> memory(4096);
  const uint32_t handle = buffers.Wrap(memory.data(), memory.size());
  ASSERT_NE(handle, 0u);
  EXPECT_EQ(buffers.Find(handle)->host, memory.data());
  EXPECT_EQ(buffers.Wrap(memory.data(), 8192), 0u);
  EXPECT_TRUE(buffers.Close(handle));
  EXPECT_EQ(buffers.usage().gtt, 0u);
}

// A memfd.
struct MemoryFile {
  explicit MemoryFile(uint64_t bytes) : fd(::memfd_create("test", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
  }
  ~MemoryFile() { ::close(fd); }
  int fd;
};

TEST(SharedMemoryTest, AnonymousMemoryAloneMayBeTheCallers) {
  const MemoryFile file(8192);
  for (const int flags : {MAP_PRIVATE, MAP_SHARED}) {
    void* const of_file = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, flags, file.fd, 0);
    ASSERT_NE(of_file, MAP_FAILED);
    EXPECT_EQ(CheckUserMemory(static_cast<std::byte*>(of_file) + 4096), EPERM);
    ::munmap(of_file, 8192);
    EXPECT_EQ(CheckUserMemory(static_cast<std::byte*>(of_file) + 4096), EFAULT);
  }
  void* const anonymous =
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(anonymous, MAP_FAILED);
  EXPECT_EQ(CheckUserMemory(static_cast<std::byte*>(anonymous) + 4096), 0);
  ::munmap(anonymous, 8192);
}

TEST(BufferTableTest, ImportsDmabufs) {
  BackingMemory backing(1 << 20);
  BufferTable buffers(backing, 0, 8192);
  const MemoryFile file(8192), large(16384);
  EXPECT_EQ(buffers.Import(file.fd, false), 0u);
  EXPECT_EQ(buffers.Import(large.fd, true), 0u);
  EXPECT_EQ(buffers.Import(-1, true), 0u);
  const uint32_t handle = buffers.Import(file.fd, true);
  ASSERT_NE(handle, 0u);
  ASSERT_EQ(::pwrite(file.fd, "x", 1, 4096), 1);
  EXPECT_EQ(buffers.Find(handle)->host[4096], std::byte{'x'});
  EXPECT_EQ(buffers.Find(handle)->bytes, 8192u);
  EXPECT_EQ(buffers.usage().gtt, 8192u);
  EXPECT_TRUE(buffers.Close(handle));
  EXPECT_EQ(buffers.usage().gtt, 0u);
}

}  // namespace
}  // namespace tandem::rdna
