// Every Vulkan entry point the project calls, loaded once and counted call by call.
//
// Counting costs one addition and is always on: a test asks which entry points a step called.
#pragma once

#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace tandem::vulkan {

// One entry point.  Counts without synchronisation: a table belongs to one thread.
template <typename Function>
class Entry;
template <typename R, typename... Args>
class Entry<R(VKAPI_PTR*)(Args...)> {
 public:
  using Function = R(VKAPI_PTR*)(Args...);
  R operator()(Args... args) const {
    ++calls_;
    return function_(args...);
  }
  void Set(PFN_vkVoidFunction function) { function_ = reinterpret_cast<Function>(function); }
  bool available() const { return function_ != nullptr; }
  uint64_t calls() const { return calls_; }

 private:
  Function function_ = nullptr;
  mutable uint64_t calls_ = 0;
};

#define TANDEM_VULKAN_INSTANCE_FUNCTIONS(X) \
  X(CreateDevice)                           \
  X(EnumerateDeviceExtensionProperties)     \
  X(EnumeratePhysicalDevices)               \
  X(GetDeviceProcAddr)                      \
  X(GetPhysicalDeviceFeatures2)             \
  X(GetPhysicalDeviceMemoryProperties2)     \
  X(GetPhysicalDeviceProperties2)           \
  X(GetPhysicalDeviceQueueFamilyProperties)

#define TANDEM_VULKAN_OPTIONAL_INSTANCE_FUNCTIONS(X) \
  X(GetPhysicalDeviceCooperativeMatrixPropertiesKHR)

#define TANDEM_VULKAN_DEVICE_FUNCTIONS(X) \
  X(AllocateCommandBuffers)               \
  X(AllocateDescriptorSets)               \
  X(AllocateMemory)                       \
  X(BeginCommandBuffer)                   \
  X(BindBufferMemory)                     \
  X(CmdBindDescriptorSets)                \
  X(CmdBindPipeline)                      \
  X(CmdCopyBuffer)                        \
  X(CmdCopyQueryPoolResults)              \
  X(CmdDispatch)                          \
  X(CmdFillBuffer)                        \
  X(CmdUpdateBuffer)                      \
  X(CmdPipelineBarrier2)                  \
  X(CmdPushConstants)                     \
  X(CmdResetQueryPool)                    \
  X(CmdWriteTimestamp2)                   \
  X(CreateBuffer)                         \
  X(CreateBufferView)                     \
  X(CreateCommandPool)                    \
  X(CreateComputePipelines)               \
  X(CreateDescriptorPool)                 \
  X(CreateDescriptorSetLayout)            \
  X(CreatePipelineCache)                  \
  X(CreatePipelineLayout)                 \
  X(CreateQueryPool)                      \
  X(CreateSemaphore)                      \
  X(CreateShaderModule)                   \
  X(DestroyBuffer)                        \
  X(DestroyBufferView)                    \
  X(DestroyCommandPool)                   \
  X(DestroyDescriptorPool)                \
  X(DestroyDescriptorSetLayout)           \
  X(DestroyDevice)                        \
  X(DestroyPipeline)                      \
  X(DestroyPipelineCache)                 \
  X(DestroyPipelineLayout)                \
  X(DestroyQueryPool)                     \
  X(DestroySemaphore)                     \
  X(DestroyShaderModule)                  \
  X(DeviceWaitIdle)                       \
  X(EndCommandBuffer)                     \
  X(FreeCommandBuffers)                   \
  X(FreeMemory)                           \
  X(GetBufferDeviceAddress)               \
  X(GetBufferMemoryRequirements)          \
  X(GetDeviceQueue)                       \
  X(GetPipelineCacheData)                 \
  X(GetQueryPoolResults)                  \
  X(GetSemaphoreCounterValue)             \
  X(MapMemory)                            \
  X(QueueSubmit2)                         \
  X(UpdateDescriptorSets)                 \
  X(WaitSemaphores)

// Those named optional are of extensions; absent where there are none.
#define TANDEM_VULKAN_OPTIONAL_DEVICE_FUNCTIONS(X) \
  X(GetMemoryFdPropertiesKHR)                      \
  X(GetMemoryHostPointerPropertiesEXT)

struct InstanceTable {
#define TANDEM_VULKAN_DECLARE(name) Entry<PFN_vk##name> name;
  TANDEM_VULKAN_INSTANCE_FUNCTIONS(TANDEM_VULKAN_DECLARE)
  TANDEM_VULKAN_OPTIONAL_INSTANCE_FUNCTIONS(TANDEM_VULKAN_DECLARE)
  // INTERNAL names an entry point that the loader lacks.
  absl::Status Load(VkInstance instance);
};

struct DeviceTable {
  TANDEM_VULKAN_DEVICE_FUNCTIONS(TANDEM_VULKAN_DECLARE)
  TANDEM_VULKAN_OPTIONAL_DEVICE_FUNCTIONS(TANDEM_VULKAN_DECLARE)
#undef TANDEM_VULKAN_DECLARE
  absl::Status Load(const InstanceTable& instance, VkDevice device);
  // Calls since loading by name ("vkQueueSubmit2"), those never called left out.
  std::map<std::string, uint64_t> CallCounts() const;
};

}  // namespace tandem::vulkan
