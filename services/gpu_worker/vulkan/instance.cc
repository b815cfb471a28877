#include "services/gpu_worker/vulkan/instance.h"

#include <vulkan/vulkan.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/vulkan/result.h"
#include "services/gpu_worker/vulkan/texel_sets.h"

namespace tandem::vulkan {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";

bool HasLayer(const char* name) {
  uint32_t count = 0;
  if (vkEnumerateInstanceLayerProperties(&count, nullptr) != VK_SUCCESS) return false;
  std::vector<VkLayerProperties> layers(count);
  if (vkEnumerateInstanceLayerProperties(&count, layers.data()) != VK_SUCCESS) return false;
  return std::any_of(layers.begin(), layers.end(), [name](const VkLayerProperties& layer) {
    return std::strcmp(layer.layerName, name) == 0;
  });
}

std::vector<VkExtensionProperties> Extensions(const InstanceTable& vk, VkPhysicalDevice device) {
  uint32_t count = 0;
  vk.EnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> extensions(count);
  vk.EnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data());
  extensions.resize(count);
  return extensions;
}

void FindMissingFeatures(const InstanceTable& vk, DeviceInfo& info) {
  VkPhysicalDeviceVulkan13Features v13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
  VkPhysicalDeviceVulkan12Features v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                          &v13};
  VkPhysicalDeviceVulkan11Features v11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                                          &v12};
  VkPhysicalDeviceFeatures2 features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &v11};
  vk.GetPhysicalDeviceFeatures2(info.handle, &features);
  const auto need = [&info](VkBool32 present, const char* name) {
    if (present == VK_FALSE) info.missing.emplace_back(name);
  };
  need(features.features.shaderInt64, "shaderInt64");
  need(features.features.shaderInt16, "shaderInt16");
  need(v11.storageBuffer16BitAccess, "storageBuffer16BitAccess");
  need(v12.bufferDeviceAddress, "bufferDeviceAddress");
  need(v12.scalarBlockLayout, "scalarBlockLayout");
  need(v12.shaderFloat16, "shaderFloat16");
  need(v12.timelineSemaphore, "timelineSemaphore");
  need(v13.shaderIntegerDotProduct, "shaderIntegerDotProduct");
  need(v13.synchronization2, "synchronization2");
  need(v13.maintenance4, "maintenance4");
  need(v13.subgroupSizeControl, "subgroupSizeControl");
  need(v13.computeFullSubgroups, "computeFullSubgroups");
}

void FillProperties(const InstanceTable& vk, DeviceInfo& info) {
  VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
  VkPhysicalDeviceVulkan13Properties v13 = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
  VkPhysicalDeviceVulkan12Properties v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES,
                                            &v13};
  VkPhysicalDeviceVulkan11Properties v11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
                                            &v12};
  if (info.external_memory_host) v13.pNext = &host;
  VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &v11};
  vk.GetPhysicalDeviceProperties2(info.handle, &properties);
  const VkPhysicalDeviceProperties& p = properties.properties;
  const VkPhysicalDeviceLimits& limits = p.limits;
  info.name = p.deviceName;
  info.driver = absl::StrFormat("%s %s", v12.driverName, v12.driverInfo);
  info.type = p.deviceType;
  if (v12.driverID == VK_DRIVER_ID_MESA_LLVMPIPE) {
    info.max_loop_iterations = 65535;
    info.query_reads_wait = true;
    info.reads_texels = limits.minTexelBufferOffsetAlignment <= kTexelAlignment;
  }
  info.waits_hide_loss = v12.driverID == VK_DRIVER_ID_MESA_RADV;
  info.heaps_share_memory =
      info.type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU &&
      (v12.driverID == VK_DRIVER_ID_MESA_RADV || v12.driverID == VK_DRIVER_ID_AMD_OPEN_SOURCE ||
       v12.driverID == VK_DRIVER_ID_AMD_PROPRIETARY);
  info.max_texels = limits.maxTexelBufferElements;
  info.api_version = p.apiVersion;
  info.driver_version = p.driverVersion;
  std::copy_n(v11.deviceUUID, VK_UUID_SIZE, info.uuid);
  info.timestamp_period_ns = limits.timestampPeriod;
  info.min_subgroup_size = v13.minSubgroupSize;
  info.max_subgroup_size = v13.maxSubgroupSize;
  info.can_require_subgroup_size =
      (v13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
  // 32 lanes where there is a choice (wave32 on RDNA).
  info.subgroup_size = info.can_require_subgroup_size && v13.minSubgroupSize != 0
                           ? std::clamp(32u, v13.minSubgroupSize, v13.maxSubgroupSize)
                           : v11.subgroupSize;
  info.max_workgroup_invocations = limits.maxComputeWorkGroupInvocations;
  info.max_shared_memory_bytes = limits.maxComputeSharedMemorySize;
  info.max_push_constant_bytes = limits.maxPushConstantsSize;
  info.fast_byte_dots = v13.integerDotProduct4x8BitPackedSignedAccelerated != VK_FALSE;
  info.max_allocation_bytes = v11.maxMemoryAllocationSize;
  info.max_buffer_bytes = v13.maxBufferSize == 0 ? v11.maxMemoryAllocationSize : v13.maxBufferSize;
  info.host_pointer_alignment = host.minImportedHostPointerAlignment;
  constexpr VkSubgroupFeatureFlags kSubgroupOperations = VK_SUBGROUP_FEATURE_BASIC_BIT |
                                                         VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                                         VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  if ((v11.subgroupSupportedOperations & kSubgroupOperations) != kSubgroupOperations) {
    info.missing.emplace_back("subgroup arithmetic and shuffles");
  }
  if (info.subgroup_size < 8 || info.subgroup_size > 64) {
    info.missing.emplace_back("subgroups of 8 to 64 lanes");
  }
}

void FillMemory(const InstanceTable& vk, bool tells_budget, DeviceInfo& info) {
  info.tells_budget = tells_budget;
  const HeapRoom room = ReadHeapRoom(vk, info.handle, tells_budget, &info.memory);
  for (uint32_t i = 0; i < info.memory.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = info.memory.memoryHeaps[i];
    const bool local = (heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
    info.heaps.push_back({.bytes = heap.size, .device_local = local, .available_bytes = room[i]});
  }
}

void FillQueues(const InstanceTable& vk, DeviceInfo& info) {
  uint32_t count = 0;
  vk.GetPhysicalDeviceQueueFamilyProperties(info.handle, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vk.GetPhysicalDeviceQueueFamilyProperties(info.handle, &count, families.data());
  // A family for compute alone leaves graphics undisturbed.
  for (const bool compute_only : {true, false}) {
    for (uint32_t i = 0; i < count && !info.has_compute_queue; ++i) {
      const VkQueueFlags flags = families[i].queueFlags;
      if ((flags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
      if (compute_only && (flags & VK_QUEUE_GRAPHICS_BIT) != 0) continue;
      info.compute_queue_family = i;
      info.timestamp_valid_bits = families[i].timestampValidBits;
      info.has_compute_queue = true;
    }
  }
  if (!info.has_compute_queue) info.missing.emplace_back("a compute queue");
}

}  // namespace

HeapRoom ReadHeapRoom(const InstanceTable& vk, VkPhysicalDevice device, bool tells_budget,
                      VkPhysicalDeviceMemoryProperties* properties) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  if (tells_budget) memory.pNext = &budget;
  vk.GetPhysicalDeviceMemoryProperties2(device, &memory);
  HeapRoom room;
  for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; ++i) {
    const uint64_t used = tells_budget ? budget.heapUsage[i] : 0;
    const uint64_t allowed =
        tells_budget ? budget.heapBudget[i] : memory.memoryProperties.memoryHeaps[i].size;
    room.push_back(allowed > used ? allowed - used : 0);
  }
  if (properties != nullptr) *properties = memory.memoryProperties;
  return room;
}

absl::StatusOr<std::unique_ptr<Instance>> Instance::Create(const Options& options) {
  std::unique_ptr<Instance> instance(new Instance);
  VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.pApplicationName = "tandem";
  application.apiVersion = VK_API_VERSION_1_3;
  VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &application;
  if (options.validation && HasLayer(kValidationLayer)) {
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &kValidationLayer;
  }
  const VkResult result = vkCreateInstance(&info, nullptr, &instance->handle_);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
    return absl::NotFoundError(
        "no Vulkan driver: install one (mesa-vulkan-drivers has one for any machine)");
  }
  TANDEM_RETURN_IF_ERROR(ToStatus(result, "vkCreateInstance"));
  TANDEM_RETURN_IF_ERROR(instance->table_.Load(instance->handle_));
  TANDEM_RETURN_IF_ERROR(instance->FindDevices(options.subgroup_size));
  return instance;
}

absl::Status Instance::FindDevices(uint32_t subgroup_size) {
  uint32_t count = 0;
  TANDEM_RETURN_IF_ERROR(ToStatus(table_.EnumeratePhysicalDevices(handle_, &count, nullptr),
                                  "vkEnumeratePhysicalDevices"));
  std::vector<VkPhysicalDevice> handles(count);
  TANDEM_RETURN_IF_ERROR(ToStatus(table_.EnumeratePhysicalDevices(handle_, &count, handles.data()),
                                  "vkEnumeratePhysicalDevices"));
  for (const VkPhysicalDevice handle : handles) {
    DeviceInfo info;
    info.handle = handle;
    VkPhysicalDeviceProperties2 basic = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    table_.GetPhysicalDeviceProperties2(handle, &basic);
    info.name = basic.properties.deviceName;
    info.type = basic.properties.deviceType;
    info.api_version = basic.properties.apiVersion;
    if (info.api_version < VK_API_VERSION_1_3) {
      info.missing.emplace_back("Vulkan 1.3");
      devices_.push_back(std::move(info));
      continue;
    }
    const auto extensions = Extensions(table_, handle);
    const auto has = [&extensions](const char* name) {
      return std::any_of(extensions.begin(), extensions.end(),
                         [name](const VkExtensionProperties& extension) {
                           return std::strcmp(extension.extensionName, name) == 0;
                         });
    };
    info.external_memory_host = has(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    info.external_memory_dmabuf = has(VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME) &&
                                  has(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
    FillProperties(table_, info);
    if (subgroup_size >= info.min_subgroup_size && subgroup_size <= info.max_subgroup_size &&
        info.can_require_subgroup_size) {
      info.subgroup_size = subgroup_size;
    }
    if (has(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME)) {
      info.matrix_shapes = FindMatrixShapes(table_, handle);
    }
    FillMemory(table_, has(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME), info);
    FillQueues(table_, info);
    FindMissingFeatures(table_, info);
    devices_.push_back(std::move(info));
  }
  return absl::OkStatus();
}

}  // namespace tandem::vulkan
