#include "services/gpu_worker/vulkan/result.h"

#include <string>

#include "absl/strings/str_format.h"

namespace tandem::vulkan {

std::string_view ResultName(VkResult result) {
  switch (result) {
#define TANDEM_VULKAN_RESULT(name) \
  case name:                       \
    return #name;
    TANDEM_VULKAN_RESULT(VK_SUCCESS)
    TANDEM_VULKAN_RESULT(VK_NOT_READY)
    TANDEM_VULKAN_RESULT(VK_TIMEOUT)
    TANDEM_VULKAN_RESULT(VK_INCOMPLETE)
    TANDEM_VULKAN_RESULT(VK_ERROR_OUT_OF_HOST_MEMORY)
    TANDEM_VULKAN_RESULT(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    TANDEM_VULKAN_RESULT(VK_ERROR_INITIALIZATION_FAILED)
    TANDEM_VULKAN_RESULT(VK_ERROR_DEVICE_LOST)
    TANDEM_VULKAN_RESULT(VK_ERROR_MEMORY_MAP_FAILED)
    TANDEM_VULKAN_RESULT(VK_ERROR_LAYER_NOT_PRESENT)
    TANDEM_VULKAN_RESULT(VK_ERROR_EXTENSION_NOT_PRESENT)
    TANDEM_VULKAN_RESULT(VK_ERROR_FEATURE_NOT_PRESENT)
    TANDEM_VULKAN_RESULT(VK_ERROR_INCOMPATIBLE_DRIVER)
    TANDEM_VULKAN_RESULT(VK_ERROR_TOO_MANY_OBJECTS)
    TANDEM_VULKAN_RESULT(VK_ERROR_INVALID_EXTERNAL_HANDLE)
    TANDEM_VULKAN_RESULT(VK_ERROR_UNKNOWN)
#undef TANDEM_VULKAN_RESULT
    default:
      return "an unlisted VkResult";
  }
}

absl::Status ToStatus(VkResult result, std::string_view what) {
  if (result == VK_SUCCESS) return absl::OkStatus();
  const std::string message =
      absl::StrFormat("%s: %s (%d)", std::string(what), std::string(ResultName(result)), result);
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
      return absl::ResourceExhaustedError(message);
    case VK_ERROR_DEVICE_LOST:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace tandem::vulkan
