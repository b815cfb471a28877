// The Vulkan instance and the devices it sees.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/api.h"
#include "services/gpu_worker/vulkan/device_info.h"
#include "services/gpu_worker/vulkan/memory_choice.h"

namespace tandem::vulkan {

// Free bytes of each heap, now.  Without a budget (VK_EXT_memory_budget): whole heaps, whatever is used.
// `properties`: the device's heaps and types; may be null.
HeapRoom ReadHeapRoom(const InstanceTable& vk, VkPhysicalDevice device, bool tells_budget,
                      VkPhysicalDeviceMemoryProperties* properties = nullptr);

// Never destroyed: with the last instance the loader unloads the drivers, and Mesa's then leak
// memory.  A process creates one, a test a few.
class Instance {
 public:
  struct Options {
    bool validation = false;  // VK_LAYER_KHRONOS_validation, where it is installed
    // For tests: lanes of a subgroup, where a device offers that size; 0: the size that fits best.
    uint32_t subgroup_size = 0;
  };

  // NOT_FOUND: no Vulkan loader or driver that knows Vulkan 1.3.
  static absl::StatusOr<std::unique_ptr<Instance>> Create(const Options& options);
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const InstanceTable& table() const { return table_; }
  const std::vector<DeviceInfo>& devices() const { return devices_; }

 private:
  Instance() = default;
  absl::Status FindDevices(uint32_t subgroup_size);

  VkInstance handle_ = VK_NULL_HANDLE;
  InstanceTable table_;
  std::vector<DeviceInfo> devices_;
};

}  // namespace tandem::vulkan
