#include "services/npu_worker/emulator/driver/device_heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "services/common/base/unique_fd.h"
#include "services/npu_worker/emulator/driver/profile.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

UniqueFd Memory(uint64_t bytes) {
  UniqueFd fd(::memfd_create("heap", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  return fd;
}

TEST(DeviceHeapTest, TheSixtyFifthMebibyteOfNpu1IsRefused) {
  DeviceHeap heap(FindProfile("npu1")->max_heap_bytes);
  const UniqueFd memory = Memory(kHeapChunkBytes);
  uint64_t address = 0;
  ASSERT_EQ(heap.AddChunk(memory.get(), kHeapChunkBytes, &address), 0);
  EXPECT_EQ(address, kHeapAddress);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(heap.Allocate(kMiB, &address), 0) << i;
  EXPECT_EQ(heap.used_bytes(), 64 * kMiB);
  EXPECT_EQ(heap.Allocate(1, &address), ENOSPC);
  EXPECT_EQ(heap.AddChunk(memory.get(), kHeapChunkBytes, &address), ENOSPC);
}

TEST(DeviceHeapTest, Npu4GrowsByChunksAndRangesMayCrossThem) {
  DeviceHeap heap(FindProfile("npu4")->max_heap_bytes);
  const UniqueFd memory = Memory(kHeapChunkBytes);
  const UniqueFd more = Memory(kHeapChunkBytes);
  uint64_t address = 0;
  ASSERT_EQ(heap.AddChunk(memory.get(), kHeapChunkBytes, &address), 0);
  EXPECT_EQ(heap.Allocate(100 * kMiB, &address), EAGAIN);
  ASSERT_EQ(heap.AddChunk(more.get(), kHeapChunkBytes, &address), 0);
  EXPECT_EQ(address, kHeapAddress + kHeapChunkBytes);
  ASSERT_EQ(heap.Allocate(100 * kMiB, &address), 0);
  std::memset(heap.Host(address), 7, 100 * kMiB);
  std::byte last{};
  ASSERT_EQ(::pread(more.get(), &last, 1, 36 * kMiB - 1), 1);
  EXPECT_EQ(last, std::byte{7});
}

TEST(DeviceHeapTest, RangesAreAlignedAndUsedAgain) {
  DeviceHeap heap(kHeapChunkBytes);
  const UniqueFd memory = Memory(kHeapChunkBytes);
  uint64_t first = 0;
  ASSERT_EQ(heap.AddChunk(memory.get(), kHeapChunkBytes, &first), 0);
  uint64_t second = 0;
  uint64_t third = 0;
  ASSERT_EQ(heap.Allocate(1, &first), 0);
  ASSERT_EQ(heap.Allocate(4096, &second), 0);
  EXPECT_EQ(second, first + kHeapAlignment);
  heap.Free(first);
  ASSERT_EQ(heap.Allocate(kHeapAlignment + 1, &third), 0);
  EXPECT_EQ(third, second + kHeapAlignment) << "it does not fit into the gap";
  ASSERT_EQ(heap.Allocate(kHeapAlignment, &third), 0);
  EXPECT_EQ(third, first);
}

TEST(DeviceHeapTest, ChunksAreWholeAndRangesNotEmpty) {
  DeviceHeap heap(kHeapChunkBytes);
  const UniqueFd memory = Memory(kHeapChunkBytes);
  uint64_t address = 0;
  EXPECT_EQ(heap.AddChunk(memory.get(), 4096, &address), EINVAL);
  EXPECT_EQ(heap.AddChunk(memory.get(), 0, &address), EINVAL);
  EXPECT_EQ(heap.Allocate(0, &address), EINVAL);
  EXPECT_EQ(heap.Allocate(kHeapChunkBytes + 1, &address), EINVAL);
}

}  // namespace
}  // namespace tandem::npu::emulator
