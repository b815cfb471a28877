// For tests: a driver between the worker and the machine's Vulkan device, whose memory it shows as an
// integrated Radeon's is shown by a driver that tells the carve-out from the rest:
//
//   heap 0, device-local: the carve-out     types: 0 not mapped, 2 mapped
//   heap 1: what the system lends           types: 1 mapped, 3 mapped and cached by the host
//
// A heap that is full refuses.  It takes the place of the loader's vkGetInstanceProcAddr in the
// program that it is linked into.  All types are the machine's memory type 0, which must be
// device-local, mapped and cached: a software driver's is.
#pragma once

#include <array>
#include <cstdint>

namespace tandem::vulkan {

struct CarveOutHeap {
  uint64_t bytes = 0;
  uint64_t used = 0;
  uint64_t most_used = 0;
  uint64_t refused = 0;  // allocations, for lack of room
};

class CarveOutMemory {
 public:
  // Of the process.
  static CarveOutMemory& Get();

  // The heaps' sizes from now on, and whether the driver tells what they have free
  // (VK_EXT_memory_budget).  REQUIRES nothing is allocated.
  void Reset(uint64_t carve_out_bytes, uint64_t lent_bytes, bool tells_budget);
  const std::array<CarveOutHeap, 2>& heaps() const { return heaps_; }
  // Whether the machine's memory type 0 can stand for all types; known once there is an instance.
  bool works() const { return works_; }

 private:
  friend struct CarveOutDriver;
  std::array<CarveOutHeap, 2> heaps_;
  bool tells_budget_ = false;
  bool works_ = false;
};

}  // namespace tandem::vulkan
