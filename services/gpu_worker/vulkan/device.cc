#include "services/gpu_worker/vulkan/device.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/vulkan/result.h"

namespace tandem::vulkan {

absl::StatusOr<std::unique_ptr<Device>> Device::Create(const Instance& instance, size_t index,
                                                       bool import_memory) {
  std::unique_ptr<Device> device(new Device(instance.table()));
  device->info_ = instance.devices().at(index);
  if (!import_memory) {
    device->info_.external_memory_host = device->info_.external_memory_dmabuf = false;
  }
  const DeviceInfo& info = device->info_;

  VkPhysicalDeviceVulkan13Features v13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
  v13.synchronization2 = VK_TRUE;
  v13.shaderIntegerDotProduct = VK_TRUE;
  v13.subgroupSizeControl = VK_TRUE;
  v13.computeFullSubgroups = VK_TRUE;
  v13.maintenance4 = VK_TRUE;  // local sizes by specialisation constant
  VkPhysicalDeviceVulkan12Features v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                          &v13};
  v12.bufferDeviceAddress = VK_TRUE;
  v12.scalarBlockLayout = VK_TRUE;
  v12.shaderFloat16 = VK_TRUE;
  v12.timelineSemaphore = VK_TRUE;
  VkPhysicalDeviceVulkan11Features v11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                                          &v12};
  v11.storageBuffer16BitAccess = VK_TRUE;
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
  matrices.cooperativeMatrix = VK_TRUE;
  if (!info.matrix_shapes.empty()) {
    v12.vulkanMemoryModel = VK_TRUE;
    v12.shaderInt8 = std::ranges::any_of(info.matrix_shapes,
                                         [](const MatrixShape& shape) { return IsByte(shape.a); });
    v13.pNext = &matrices;
  }
  VkPhysicalDeviceFeatures2 features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &v11};
  features.features.shaderInt64 = VK_TRUE;
  features.features.shaderInt16 = VK_TRUE;

  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
  queue.queueFamilyIndex = info.compute_queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  std::vector<const char*> extensions;
  if (!info.matrix_shapes.empty()) {
    extensions.push_back(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
  }
  if (info.external_memory_host) {
    extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  }
  if (info.external_memory_dmabuf) {
    extensions.push_back(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
    extensions.push_back(VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME);
  }
  VkDeviceCreateInfo create = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features};
  create.queueCreateInfoCount = 1;
  create.pQueueCreateInfos = &queue;
  create.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  create.ppEnabledExtensionNames = extensions.data();
  TANDEM_RETURN_IF_ERROR(
      ToStatus(instance.table().CreateDevice(info.handle, &create, nullptr, &device->handle_),
               "vkCreateDevice on " + info.name));
  TANDEM_RETURN_IF_ERROR(device->table_.Load(instance.table(), device->handle_));
  device->table_.GetDeviceQueue(device->handle_, info.compute_queue_family, 0, &device->queue_);
  return device;
}

Device::~Device() {
  if (!table_.DestroyDevice.available()) return;
  if (!lost_) table_.DeviceWaitIdle(handle_);
  table_.DestroyDevice(handle_, nullptr);
}

HeapRoom Device::ReadRoom() const {
  return ReadHeapRoom(instance_, info_.handle, info_.tells_budget);
}

int Device::FindMemoryType(uint32_t allowed, VkMemoryPropertyFlags required,
                           VkMemoryPropertyFlags preferred) const {
  int best = -1, best_score = -1;
  for (uint32_t i = 0; i < info_.memory.memoryTypeCount; ++i) {
    const VkMemoryPropertyFlags flags = info_.memory.memoryTypes[i].propertyFlags;
    if ((allowed >> i & 1) == 0 || (flags & required) != required) continue;
    const int score = std::popcount(flags & preferred);
    if (score > best_score) {
      best = static_cast<int>(i);
      best_score = score;
    }
  }
  return best;
}

Device::BufferRange Device::FindBuffer(VkDeviceAddress address) const {
  auto it = buffers_.upper_bound(address);
  while (it != buffers_.begin()) {
    --it;
    const uint64_t offset = address - it->first;
    if (offset < it->second.bytes) return {it->second.buffer, offset, it->second.bytes - offset};
  }
  return {};
}

void Device::AddBuffer(VkDeviceAddress address, uint64_t bytes, VkBuffer buffer) const {
  buffers_.emplace(address, KnownBuffer{bytes, buffer});
}

void Device::RemoveBuffer(VkDeviceAddress address, VkBuffer buffer) const {
  const auto [begin, end] = buffers_.equal_range(address);
  for (auto it = begin; it != end; ++it) {
    if (it->second.buffer != buffer) continue;
    buffers_.erase(it);
    return;
  }
}

absl::Status Device::Check(VkResult result, std::string_view what) const {
  if (result == VK_ERROR_DEVICE_LOST) lost_ = true;
  return ToStatus(result, what);
}

}  // namespace tandem::vulkan
