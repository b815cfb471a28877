// A small Vulkan for the tests of the emulated Radeon: what the project's own wrappers do not need
// (graphics queues, events, submissions that wait for the host) is reachable too.
#pragma once

#include <gtest/gtest.h>
#include <vulkan/vulkan.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

namespace tandem::rdna {

#define ASSERT_VK(call) ASSERT_EQ(call, VK_SUCCESS)
#define EXPECT_VK(call) EXPECT_EQ(call, VK_SUCCESS)

// Mapped memory with a buffer over all of it.
struct TestBuffer {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  uint8_t* mapped = nullptr;
  uint64_t bytes = 0;
  uint64_t address = 0;

  uint32_t word(uint64_t index) const {
    uint32_t value;
    std::memcpy(&value, mapped + 4 * index, 4);
    return value;
  }
};

// A compute shader whose push constants are an address and three words.
struct TestKernel {
  VkPipelineLayout layout = VK_NULL_HANDLE;
  VkPipeline pipeline = VK_NULL_HANDLE;

  void Bind(VkCommandBuffer commands, uint64_t address, std::array<uint32_t, 3> words) const;
};

class TestInstance {
 public:
  TestInstance();
  ~TestInstance() { vkDestroyInstance(handle_, nullptr); }
  TestInstance(const TestInstance&) = delete;
  TestInstance& operator=(const TestInstance&) = delete;

  VkPhysicalDevice device() const { return device_; }
  uint32_t num_devices() const { return num_devices_; }
  // The first family with or without graphics that computes.
  uint32_t Family(bool graphics) const;

 private:
  VkInstance handle_ = VK_NULL_HANDLE;
  VkPhysicalDevice device_ = VK_NULL_HANDLE;
  uint32_t num_devices_ = 0;
};

class TestDevice {
 public:
  explicit TestDevice(const TestInstance& instance, bool graphics = false);
  ~TestDevice();
  TestDevice(const TestDevice&) = delete;
  TestDevice& operator=(const TestDevice&) = delete;

  VkDevice handle() const { return handle_; }
  VkQueue queue() const { return queue_; }

  TestBuffer Allocate(uint64_t bytes);
  void Free(TestBuffer& buffer);
  // Lives as long as the device.
  TestKernel Kernel(std::span<const uint32_t> spirv);
  VkCommandBuffer Record(const std::function<void(VkCommandBuffer)>& commands);
  VkSemaphore Timeline(uint64_t value);
  // Zero values: no wait, no signal.
  VkResult Submit(VkCommandBuffer commands, VkSemaphore timeline, uint64_t wait, uint64_t signal);
  VkResult Wait(VkSemaphore timeline, uint64_t value, uint64_t nanoseconds);
  // Records, submits and waits.
  VkResult Run(const std::function<void(VkCommandBuffer)>& commands);

 private:
  VkPhysicalDevice physical_;
  VkDevice handle_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  std::vector<VkSemaphore> timelines_;
  std::vector<TestKernel> kernels_;
};

inline constexpr uint64_t kTenSeconds = 10'000'000'000;

}  // namespace tandem::rdna
