// The Vulkan instance and the devices it sees.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/api.h"
#include "services/gpu_worker/vulkan/device_info.h"

namespace tandem::vulkan {

// Never destroyed: with the last instance the loader unloads the drivers, and Mesa's then leak
// memory.  A process creates one, a test a few.
class Instance {
 public:
  struct Options {
    bool validation = false;  // VK_LAYER_KHRONOS_validation, where it is installed
  };

  // NOT_FOUND: no Vulkan loader or driver that knows Vulkan 1.3.
  static absl::StatusOr<std::unique_ptr<Instance>> Create(const Options& options);
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const InstanceTable& table() const { return table_; }
  const std::vector<DeviceInfo>& devices() const { return devices_; }

 private:
  Instance() = default;
  absl::Status FindDevices();

  VkInstance handle_ = VK_NULL_HANDLE;
  InstanceTable table_;
  std::vector<DeviceInfo> devices_;
};

}  // namespace tandem::vulkan
