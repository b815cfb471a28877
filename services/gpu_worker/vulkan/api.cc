#include "services/gpu_worker/vulkan/api.h"

#include <vulkan/vulkan.h>

#include "absl/strings/str_format.h"

namespace tandem::vulkan {

absl::Status InstanceTable::Load(VkInstance instance) {
#define TANDEM_VULKAN_LOAD(name)                                                 \
  name.Set(vkGetInstanceProcAddr(instance, "vk" #name));                         \
  if (!name.available()) {                                                       \
    return absl::InternalError("the Vulkan loader has no entry point vk" #name); \
  }
  TANDEM_VULKAN_INSTANCE_FUNCTIONS(TANDEM_VULKAN_LOAD)
#undef TANDEM_VULKAN_LOAD
#define TANDEM_VULKAN_LOAD_OPTIONAL(name) name.Set(vkGetInstanceProcAddr(instance, "vk" #name));
  TANDEM_VULKAN_OPTIONAL_INSTANCE_FUNCTIONS(TANDEM_VULKAN_LOAD_OPTIONAL)
#undef TANDEM_VULKAN_LOAD_OPTIONAL
  return absl::OkStatus();
}

absl::Status DeviceTable::Load(const InstanceTable& instance, VkDevice device) {
#define TANDEM_VULKAN_LOAD(name)                                                 \
  name.Set(instance.GetDeviceProcAddr(device, "vk" #name));                      \
  if (!name.available()) {                                                       \
    return absl::InternalError("the Vulkan driver has no entry point vk" #name); \
  }
  TANDEM_VULKAN_DEVICE_FUNCTIONS(TANDEM_VULKAN_LOAD)
#undef TANDEM_VULKAN_LOAD
#define TANDEM_VULKAN_LOAD_OPTIONAL(name) name.Set(instance.GetDeviceProcAddr(device, "vk" #name));
  TANDEM_VULKAN_OPTIONAL_DEVICE_FUNCTIONS(TANDEM_VULKAN_LOAD_OPTIONAL)
#undef TANDEM_VULKAN_LOAD_OPTIONAL
  return absl::OkStatus();
}

std::map<std::string, uint64_t> DeviceTable::CallCounts() const {
  std::map<std::string, uint64_t> counts;
#define TANDEM_VULKAN_COUNT(name) \
  if (name.calls() > 0) counts["vk" #name] = name.calls();
  TANDEM_VULKAN_DEVICE_FUNCTIONS(TANDEM_VULKAN_COUNT)
  TANDEM_VULKAN_OPTIONAL_DEVICE_FUNCTIONS(TANDEM_VULKAN_COUNT)
#undef TANDEM_VULKAN_COUNT
  return counts;
}

}  // namespace tandem::vulkan
