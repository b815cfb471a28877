// Which memory of a device a buffer gets: decided from plain data, without a device.
//
// A device that shares the host's memory may show it as several heaps.  RADV on an integrated
// Radeon shows all that the GPU can use, the carve-out of 512 MiB and what the system lends, as two
// heaps of two thirds and one third; AMD's own driver shows the carve-out as the only device-local
// heap.  The device reads all of them equally fast.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/gpu_worker/vulkan/device_info.h"

namespace tandem::vulkan {

enum class MemoryKind : uint8_t {
  kDevice,    // not mapped; device-local, or anywhere if the device shares the host's memory
  kUpload,    // mapped, coherent, device-local where the device allows both
  kExchange,  // mapped, coherent, cached by the host where the device allows it
};

// Whether buffers of the kind are mapped.
bool IsMapped(MemoryKind kind);

// Free bytes of each heap, in their order.
using HeapRoom = std::vector<uint64_t>;

// Memory types for a buffer of `bytes`, in the order in which to try them: those whose heap has
// room, then the others; the kind's preference, then the device's order.  `allowed`: bits of
// the types that the buffer can have.  Empty: no type is of the kind.
std::vector<uint32_t> MemoryTypesFor(const DeviceInfo& info, const HeapRoom& room, uint32_t allowed,
                                     MemoryKind kind, uint64_t bytes);

struct MemorySize {
  uint64_t bytes = 0;
  uint64_t available_bytes = 0;
};
// What buffers of kDevice can take together: the largest device-local heap; all heaps if they are
// shares of one memory.
MemorySize UsableMemory(const DeviceInfo& info);

// "heap 0: 400 of 512 MiB free, device-local; heap 1: ..."
std::string DescribeRoom(const DeviceInfo& info, const HeapRoom& room);

}  // namespace tandem::vulkan
