#include "services/gpu_worker/vulkan/memory_choice.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tandem::vulkan {
namespace {

constexpr uint64_t kMib = 1 << 20, kGib = 1 << 30;
constexpr uint32_t kAll = ~0u;
constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kVisible =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
constexpr VkMemoryPropertyFlags kAmdCoherent = VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD;

using Types = std::vector<uint32_t>;

DeviceInfo MakeDevice(VkPhysicalDeviceType type, const std::vector<MemoryHeap>& heaps,
                      const std::vector<std::pair<VkMemoryPropertyFlags, uint32_t>>& types) {
  DeviceInfo info;
  info.type = type;
  info.heaps = heaps;
  for (const MemoryHeap& heap : heaps) {
    VkMemoryHeapFlags flags = 0;
    if (heap.device_local) flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
    info.memory.memoryHeaps[info.memory.memoryHeapCount++] = {heap.bytes, flags};
  }
  for (const auto& [flags, heap] : types) {
    info.memory.memoryTypes[info.memory.memoryTypeCount++] = {flags, heap};
  }
  return info;
}

// An integrated Radeon, as AMD's own driver shows it: the carve-out is the device's heap.
DeviceInfo CarveOut() {
  DeviceInfo info = MakeDevice(VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU,
                               {{512 * kMib, true, 480 * kMib}, {15 * kGib, false, 14 * kGib}},
                               {{kLocal, 0},
                                {kVisible, 1},
                                {kLocal | kVisible, 0},
                                {kVisible | kCached, 1},
                                {kLocal | kAmdCoherent, 0},
                                {kVisible | kAmdCoherent, 1}});
  info.heaps_share_memory = true;
  return info;
}

// The same machine, as RADV shows it.
DeviceInfo Radv() {
  DeviceInfo info =
      MakeDevice(VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU,
                 {{15872 * kMib / 3, false, 5 * kGib}, {15872 * kMib / 3 * 2, true, 10 * kGib}},
                 {{kLocal, 1}, {kVisible, 0}, {kLocal | kVisible, 1}, {kVisible | kCached, 0}});
  info.heaps_share_memory = true;
  return info;
}

DeviceInfo Card() {
  return MakeDevice(
      VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
      {{24 * kGib, true, 23 * kGib}, {32 * kGib, false, 30 * kGib}, {246 * kMib, true, 240 * kMib}},
      {{0, 1}, {kLocal, 0}, {kVisible, 1}, {kVisible | kCached, 1}, {kLocal | kVisible, 2}});
}

DeviceInfo Software() {
  return MakeDevice(VK_PHYSICAL_DEVICE_TYPE_CPU, {{16 * kGib, true, 12 * kGib}},
                    {{kLocal | kVisible | kCached, 0}});
}

HeapRoom RoomOf(const DeviceInfo& info) {
  HeapRoom room;
  for (const MemoryHeap& heap : info.heaps) room.push_back(heap.available_bytes);
  return room;
}

Types Choose(const DeviceInfo& info, MemoryKind kind, uint64_t bytes) {
  return MemoryTypesFor(info, RoomOf(info), kAll, kind, bytes);
}

TEST(MemoryChoiceTest, BuffersThatFitGoToTheCarveOut) {
  EXPECT_EQ(Choose(CarveOut(), MemoryKind::kDevice, 100 * kMib), (Types{0, 2, 1, 3}));
  EXPECT_EQ(Choose(CarveOut(), MemoryKind::kUpload, 1 * kMib), (Types{2, 1, 3}));
  EXPECT_EQ(Choose(CarveOut(), MemoryKind::kExchange, 1 * kMib), (Types{3, 1, 2}));
}

TEST(MemoryChoiceTest, BuffersLargerThanTheCarveOutGoToTheSystemsMemory) {
  EXPECT_EQ(Choose(CarveOut(), MemoryKind::kDevice, 3 * kGib), (Types{1, 3, 0, 2}));
  EXPECT_EQ(Choose(CarveOut(), MemoryKind::kUpload, 3 * kGib), (Types{1, 3, 2}));
  // A sixteenth of it is left free.
  EXPECT_EQ(Choose(CarveOut(), MemoryKind::kDevice, 448 * kMib).front(), 0u);
  EXPECT_EQ(Choose(CarveOut(), MemoryKind::kDevice, 448 * kMib + 1).front(), 1u);
}

TEST(MemoryChoiceTest, WithoutRoomAnywhereTheDriverDecides) {
  EXPECT_EQ(Choose(CarveOut(), MemoryKind::kDevice, 20 * kGib), (Types{0, 2, 1, 3}));
}

TEST(MemoryChoiceTest, TakesOnlyTypesThatTheBufferCanHave) {
  const DeviceInfo info = CarveOut();
  EXPECT_EQ(MemoryTypesFor(info, RoomOf(info), 0b1010, MemoryKind::kDevice, 1), (Types{1, 3}));
  EXPECT_EQ(MemoryTypesFor(info, RoomOf(info), 0b0001, MemoryKind::kUpload, 1), Types());
}

TEST(MemoryChoiceTest, RadvsHeapsAreSharesOfOneMemory) {
  EXPECT_EQ(Choose(Radv(), MemoryKind::kDevice, 1 * kGib), (Types{0, 2, 1, 3}));
  const MemorySize size = UsableMemory(Radv());
  EXPECT_EQ(size.bytes >> 20, 15871u);
  EXPECT_EQ(size.available_bytes, 15 * kGib);
  EXPECT_EQ(UsableMemory(CarveOut()).bytes, 15 * kGib + 512 * kMib);
}

TEST(MemoryChoiceTest, ACardTakesItsOwnMemoryOrNone) {
  EXPECT_EQ(Choose(Card(), MemoryKind::kDevice, 1 * kGib), (Types{1, 4}));
  EXPECT_EQ(Choose(Card(), MemoryKind::kDevice, 30 * kGib), (Types{1, 4}));
  EXPECT_EQ(Choose(Card(), MemoryKind::kUpload, 1 * kMib), (Types{4, 2, 3}));
  EXPECT_EQ(Choose(Card(), MemoryKind::kUpload, 1 * kGib), (Types{2, 3, 4}));
  EXPECT_EQ(Choose(Card(), MemoryKind::kExchange, 1 * kGib), (Types{3, 2, 4}));
  EXPECT_EQ(UsableMemory(Card()).bytes, 24 * kGib);
  EXPECT_EQ(UsableMemory(Card()).available_bytes, 23 * kGib);
}

TEST(MemoryChoiceTest, SoftwareHasOneKindOfMemory) {
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kUpload, MemoryKind::kExchange}) {
    EXPECT_EQ(Choose(Software(), kind, 20 * kGib), (Types{0}));
  }
  EXPECT_EQ(UsableMemory(Software()).available_bytes, 12 * kGib);
}

// A driver's budget may be more than the heap; it is not more memory.
TEST(MemoryChoiceTest, NoMoreIsAvailableThanThereIs) {
  DeviceInfo info = Software();
  info.heaps[0].available_bytes = 99 * kGib;
  EXPECT_EQ(UsableMemory(info).available_bytes, 16 * kGib);
}

TEST(MemoryChoiceTest, SaysWhatEachHeapHasFree) {
  EXPECT_EQ(DescribeRoom(CarveOut(), RoomOf(CarveOut())),
            "heap 0: 480 of 512 MiB free, device-local; heap 1: 14336 of 15360 MiB free");
}

}  // namespace
}  // namespace tandem::vulkan
