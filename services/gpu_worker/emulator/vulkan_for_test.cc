#include "services/gpu_worker/emulator/vulkan_for_test.h"

namespace tandem::rdna {

TestInstance::TestInstance() {
  VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.apiVersion = VK_API_VERSION_1_3;
  VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &application;
  EXPECT_VK(vkCreateInstance(&info, nullptr, &handle_));
  EXPECT_VK(vkEnumeratePhysicalDevices(handle_, &num_devices_, nullptr));
  uint32_t one = 1;
  vkEnumeratePhysicalDevices(handle_, &one, &device_);
}

uint32_t TestInstance::Family(bool graphics) const {
  uint32_t count = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(device_, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(device_, &count, families.data());
  for (uint32_t i = 0; i < count; ++i) {
    const VkQueueFlags flags = families[i].queueFlags;
    if ((flags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
    if (((flags & VK_QUEUE_GRAPHICS_BIT) != 0) == graphics) return i;
  }
  ADD_FAILURE() << "no such queue";
  return 0;
}

TestDevice::TestDevice(const TestInstance& instance, bool graphics) : physical_(instance.device()) {
  VkPhysicalDeviceVulkan13Features v13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
  v13.synchronization2 = VK_TRUE;
  VkPhysicalDeviceVulkan12Features v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                          &v13};
  v12.timelineSemaphore = VK_TRUE;
  v12.bufferDeviceAddress = VK_TRUE;
  v12.scalarBlockLayout = VK_TRUE;
  const float priority = 1;
  VkDeviceQueueCreateInfo queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
  queue.queueFamilyIndex = instance.Family(graphics);
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &v12};
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  EXPECT_VK(vkCreateDevice(physical_, &info, nullptr, &handle_));
  vkGetDeviceQueue(handle_, queue.queueFamilyIndex, 0, &queue_);
  VkCommandPoolCreateInfo pool = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool.queueFamilyIndex = queue.queueFamilyIndex;
  EXPECT_VK(vkCreateCommandPool(handle_, &pool, nullptr, &pool_));
}

TestDevice::~TestDevice() {
  vkDeviceWaitIdle(handle_);
  for (const VkSemaphore timeline : timelines_) vkDestroySemaphore(handle_, timeline, nullptr);
  for (const TestKernel& kernel : kernels_) {
    vkDestroyPipeline(handle_, kernel.pipeline, nullptr);
    vkDestroyPipelineLayout(handle_, kernel.layout, nullptr);
  }
  vkDestroyCommandPool(handle_, pool_, nullptr);
  vkDestroyDevice(handle_, nullptr);
}

TestBuffer TestDevice::Allocate(uint64_t bytes) {
  TestBuffer result = {.bytes = bytes};
  VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
               VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT |
               VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  EXPECT_VK(vkCreateBuffer(handle_, &info, nullptr, &result.buffer));
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(handle_, result.buffer, &needs);
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(physical_, &memory);
  VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO};
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo allocate = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags};
  allocate.allocationSize = needs.size;
  constexpr VkMemoryPropertyFlags kMapped =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  while ((needs.memoryTypeBits >> allocate.memoryTypeIndex & 1) == 0 ||
         (memory.memoryTypes[allocate.memoryTypeIndex].propertyFlags & kMapped) != kMapped) {
    ++allocate.memoryTypeIndex;
  }
  EXPECT_VK(vkAllocateMemory(handle_, &allocate, nullptr, &result.memory));
  EXPECT_VK(vkBindBufferMemory(handle_, result.buffer, result.memory, 0));
  EXPECT_VK(vkMapMemory(handle_, result.memory, 0, VK_WHOLE_SIZE, 0,
                        reinterpret_cast<void**>(&result.mapped)));
  std::memset(result.mapped, 0xee, bytes);
  VkBufferDeviceAddressInfo address = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO};
  address.buffer = result.buffer;
  result.address = vkGetBufferDeviceAddress(handle_, &address);
  return result;
}

void TestDevice::Free(TestBuffer& buffer) {
  vkDestroyBuffer(handle_, buffer.buffer, nullptr);
  vkFreeMemory(handle_, buffer.memory, nullptr);
  buffer = {};
}

TestKernel TestDevice::Kernel(std::span<const uint32_t> spirv) {
  TestKernel kernel;
  VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 20};
  VkPipelineLayoutCreateInfo layout = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &range;
  EXPECT_VK(vkCreatePipelineLayout(handle_, &layout, nullptr, &kernel.layout));
  VkShaderModuleCreateInfo code = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  code.codeSize = spirv.size_bytes();
  code.pCode = spirv.data();
  VkShaderModule shader = VK_NULL_HANDLE;
  EXPECT_VK(vkCreateShaderModule(handle_, &code, nullptr, &shader));
  VkComputePipelineCreateInfo info = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.flags = VK_PIPELINE_CREATE_DISPATCH_BASE_BIT;
  info.layout = kernel.layout;
  info.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO};
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = shader;
  info.stage.pName = "main";
  EXPECT_VK(vkCreateComputePipelines(handle_, VK_NULL_HANDLE, 1, &info, nullptr, &kernel.pipeline));
  vkDestroyShaderModule(handle_, shader, nullptr);
  kernels_.push_back(kernel);
  return kernel;
}

void TestKernel::Bind(VkCommandBuffer commands, uint64_t address,
                      std::array<uint32_t, 3> words) const {
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, 8, &address);
  vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 8, 12, words.data());
}

VkCommandBuffer TestDevice::Record(const std::function<void(VkCommandBuffer)>& commands) {
  VkCommandBufferAllocateInfo allocate = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  allocate.commandPool = pool_;
  allocate.commandBufferCount = 1;
  VkCommandBuffer buffer = VK_NULL_HANDLE;
  EXPECT_VK(vkAllocateCommandBuffers(handle_, &allocate, &buffer));
  VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  EXPECT_VK(vkBeginCommandBuffer(buffer, &begin));
  commands(buffer);
  EXPECT_VK(vkEndCommandBuffer(buffer));
  return buffer;
}

VkSemaphore TestDevice::Timeline(uint64_t value) {
  VkSemaphoreTypeCreateInfo type = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  type.initialValue = value;
  VkSemaphoreCreateInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type};
  VkSemaphore semaphore = VK_NULL_HANDLE;
  EXPECT_VK(vkCreateSemaphore(handle_, &info, nullptr, &semaphore));
  timelines_.push_back(semaphore);
  return semaphore;
}

VkResult TestDevice::Submit(VkCommandBuffer commands, VkSemaphore timeline, uint64_t wait,
                            uint64_t signal) {
  VkCommandBufferSubmitInfo buffer = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO};
  buffer.commandBuffer = commands;
  VkSemaphoreSubmitInfo waits = {VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO};
  waits.semaphore = timeline;
  waits.value = wait;
  waits.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  VkSemaphoreSubmitInfo signals = waits;
  signals.value = signal;
  VkSubmitInfo2 submit = {VK_STRUCTURE_TYPE_SUBMIT_INFO_2};
  submit.commandBufferInfoCount = 1;
  submit.pCommandBufferInfos = &buffer;
  submit.waitSemaphoreInfoCount = wait != 0 ? 1 : 0;
  submit.pWaitSemaphoreInfos = &waits;
  submit.signalSemaphoreInfoCount = signal != 0 ? 1 : 0;
  submit.pSignalSemaphoreInfos = &signals;
  return vkQueueSubmit2(queue_, 1, &submit, VK_NULL_HANDLE);
}

VkResult TestDevice::Wait(VkSemaphore timeline, uint64_t value, uint64_t nanoseconds) {
  VkSemaphoreWaitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline;
  info.pValues = &value;
  return vkWaitSemaphores(handle_, &info, nanoseconds);
}

VkResult TestDevice::Run(const std::function<void(VkCommandBuffer)>& commands) {
  const VkSemaphore done = Timeline(0);
  const VkResult submitted = Submit(Record(commands), done, 0, 1);
  return submitted != VK_SUCCESS ? submitted : Wait(done, 1, kTenSeconds);
}

}  // namespace tandem::rdna
