// What the null driver's handles point to.
#pragma once

#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tools/kernel_report/null_driver.h"

namespace tandem::report {

struct NullMemory {
  uint64_t bytes = 0;
  std::byte* mapped = nullptr;  // made when first mapped, of pages that exist once written
};

struct NullBuffer {
  uint64_t bytes = 0;
  uint64_t address = 0;
  NullMemory* memory = nullptr;
};

struct NullQueries {
  std::vector<uint64_t> ticks;  // nanoseconds of the driver's clock
};

struct NullTimestamp {
  size_t dispatches = 0;  // of its command buffer, before it
  NullQueries* pool = nullptr;
  uint32_t index = 0;
};

struct NullCommands {
  std::vector<NullTimestamp> timestamps;
  std::vector<Dispatch> dispatches;
  size_t bound = 0;
  std::array<std::byte, vulkan::kPushConstantBytes> push = {};
  bool barrier = false;
};

struct NullCommandPool {
  std::vector<std::unique_ptr<NullCommands>> commands;
};

struct NullSemaphore {
  uint64_t value = 0;
};

// Vulkan's handles are pointers where pointers have 64 bits.
template <typename Handle, typename Object>
Handle ToHandle(Object* object) {
  return reinterpret_cast<Handle>(object);
}
template <typename Object, typename Handle>
Object* FromHandle(Handle handle) {
  return reinterpret_cast<Object*>(handle);
}

// The driver's own function of that name for memory, command buffers or the queue; null: none.
PFN_vkVoidFunction QueueFunction(std::string_view name);

// Fills what a probe's dispatch would have written: how the chip's lanes hold matrices
// (kernels/fragment_layout.h).  `words`: as many as the probe writes.
void AnswerProbe(const Chip& chip, gpu::KernelId probe, uint32_t* words);

}  // namespace tandem::report
