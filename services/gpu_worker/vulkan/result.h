// VkResult as a Status.
#pragma once

#include <vulkan/vulkan_core.h>

#include <string_view>

#include "absl/status/status.h"

namespace tandem::vulkan {

// "VK_ERROR_DEVICE_LOST".
std::string_view ResultName(VkResult result);

// OK for VK_SUCCESS.  RESOURCE_EXHAUSTED: memory or objects; UNAVAILABLE: the device is lost;
// INTERNAL: everything else.  `what` names the call and its object: "vkAllocateMemory of 4096
// bytes".
absl::Status ToStatus(VkResult result, std::string_view what);

}  // namespace tandem::vulkan
