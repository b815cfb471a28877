#include "services/gpu_worker/vulkan/memory_choice.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <tuple>

#include "absl/strings/str_format.h"

namespace tandem::vulkan {
namespace {

constexpr VkMemoryPropertyFlags kDeviceLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
// Types with these are for other uses, or need features that no device is made with.
constexpr VkMemoryPropertyFlags kUnusable =
    VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT |
    VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD |
    VK_MEMORY_PROPERTY_RDMA_CAPABLE_BIT_NV;
constexpr VkMemoryPropertyFlags kHostMapped =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
// Of each heap, this part is left to the driver and to other programs.
constexpr uint64_t kReservedPart = 16;

struct Wish {
  VkMemoryPropertyFlags required, preferred;
};

Wish WishOf(MemoryKind kind, bool unified_memory) {
  switch (kind) {
    case MemoryKind::kDevice:
      return {unified_memory ? 0 : kDeviceLocal, kDeviceLocal};
    case MemoryKind::kUpload:
      return {kHostMapped, kDeviceLocal};
    case MemoryKind::kExchange:
      return {kHostMapped, VK_MEMORY_PROPERTY_HOST_CACHED_BIT};
  }
  return {};
}

}  // namespace

bool IsMapped(MemoryKind kind) { return kind != MemoryKind::kDevice; }

std::vector<uint32_t> MemoryTypesFor(const DeviceInfo& info, const HeapRoom& room, uint32_t allowed,
                                     MemoryKind kind, uint64_t bytes) {
  const Wish wish = WishOf(kind, info.unified_memory());
  std::vector<uint32_t> types;
  for (uint32_t i = 0; i < info.memory.memoryTypeCount; ++i) {
    const VkMemoryPropertyFlags flags = info.memory.memoryTypes[i].propertyFlags;
    if ((allowed >> i & 1) == 0 || (flags & kUnusable) != 0) continue;
    if ((flags & wish.required) == wish.required) types.push_back(i);
  }
  const auto rank = [&](uint32_t type) {
    const VkMemoryType& properties = info.memory.memoryTypes[type];
    const uint64_t heap_bytes = info.memory.memoryHeaps[properties.heapIndex].size;
    const bool fits = bytes + heap_bytes / kReservedPart <= room.at(properties.heapIndex);
    return std::tuple(!fits, -std::popcount(properties.propertyFlags & wish.preferred), type);
  };
  std::ranges::sort(types, {}, rank);
  return types;
}

MemorySize UsableMemory(const DeviceInfo& info) {
  MemorySize all, largest;
  for (const MemoryHeap& heap : info.heaps) {
    const uint64_t available = std::min(heap.available_bytes, heap.bytes);
    all.bytes += heap.bytes;
    all.available_bytes += available;
    if (heap.device_local && heap.bytes > largest.bytes) largest = {heap.bytes, available};
  }
  return info.heaps_share_memory ? all : largest;
}

std::string DescribeRoom(const DeviceInfo& info, const HeapRoom& room) {
  std::string text;
  for (size_t i = 0; i < room.size(); ++i) {
    absl::StrAppendFormat(&text, "%sheap %d: %d of %d MiB free%s", i == 0 ? "" : "; ", i,
                          room[i] >> 20, info.heaps[i].bytes >> 20,
                          info.heaps[i].device_local ? ", device-local" : "");
  }
  return text;
}

}  // namespace tandem::vulkan
