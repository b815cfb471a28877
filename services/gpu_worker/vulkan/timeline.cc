#include "services/gpu_worker/vulkan/timeline.h"

#include <sched.h>

#include <array>
#include <chrono>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::vulkan {

absl::StatusOr<std::unique_ptr<Timeline>> Timeline::Create(const Device& device) {
  std::unique_ptr<Timeline> timeline(new Timeline(device));
  VkSemaphoreTypeCreateInfo type = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  const VkSemaphoreCreateInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type};
  TANDEM_RETURN_IF_ERROR(device.Check(
      device.vk().CreateSemaphore(device.handle(), &info, nullptr, &timeline->semaphore_),
      "vkCreateSemaphore"));
  if (device.info().waits_hide_loss) TANDEM_RETURN_IF_ERROR(timeline->RecordNothing());
  return timeline;
}

absl::Status Timeline::RecordNothing() {
  VkCommandPoolCreateInfo pool = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool.queueFamilyIndex = device_.info().compute_queue_family;
  TANDEM_RETURN_IF_ERROR(
      device_.Check(device_.vk().CreateCommandPool(device_.handle(), &pool, nullptr, &pool_),
                    "vkCreateCommandPool"));
  VkCommandBufferAllocateInfo allocate = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  allocate.commandPool = pool_;
  allocate.commandBufferCount = 1;
  TANDEM_RETURN_IF_ERROR(
      device_.Check(device_.vk().AllocateCommandBuffers(device_.handle(), &allocate, &nothing_),
                    "vkAllocateCommandBuffers"));
  VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  begin.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;  // nobody waits for it
  TANDEM_RETURN_IF_ERROR(
      device_.Check(device_.vk().BeginCommandBuffer(nothing_, &begin), "vkBeginCommandBuffer"));
  return device_.Check(device_.vk().EndCommandBuffer(nothing_), "vkEndCommandBuffer");
}

absl::Status Timeline::CheckNotLost() const {
  if (nothing_ == VK_NULL_HANDLE) return absl::OkStatus();
  VkCommandBufferSubmitInfo nothing = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO};
  nothing.commandBuffer = nothing_;
  VkSubmitInfo2 submit = {VK_STRUCTURE_TYPE_SUBMIT_INFO_2};
  submit.commandBufferInfoCount = 1;
  submit.pCommandBufferInfos = &nothing;
  return device_.Check(device_.vk().QueueSubmit2(device_.queue(), 1, &submit, VK_NULL_HANDLE),
                       "vkQueueSubmit2");
}

Timeline::~Timeline() {
  if (pool_ != VK_NULL_HANDLE) {
    // The device may still have the commands that do nothing.
    if (!device_.lost()) device_.vk().DeviceWaitIdle(device_.handle());
    device_.vk().DestroyCommandPool(device_.handle(), pool_, nullptr);
  }
  if (semaphore_ != VK_NULL_HANDLE) {
    device_.vk().DestroySemaphore(device_.handle(), semaphore_, nullptr);
  }
}

absl::StatusOr<uint64_t> Timeline::Submit(std::span<const VkCommandBuffer> commands) {
  TANDEM_CHECK(commands.size() <= kMostCommands);
  std::array<VkCommandBufferSubmitInfo, kMostCommands> infos;
  for (size_t i = 0; i < commands.size(); ++i) {
    infos[i] = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO};
    infos[i].commandBuffer = commands[i];
  }
  VkSemaphoreSubmitInfo signal = {VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO};
  signal.semaphore = semaphore_;
  signal.value = value_ + 1;
  signal.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  VkSubmitInfo2 submit = {VK_STRUCTURE_TYPE_SUBMIT_INFO_2};
  submit.commandBufferInfoCount = static_cast<uint32_t>(commands.size());
  submit.pCommandBufferInfos = infos.data();
  submit.signalSemaphoreInfoCount = 1;
  submit.pSignalSemaphoreInfos = &signal;
  TANDEM_RETURN_IF_ERROR(device_.Check(
      device_.vk().QueueSubmit2(device_.queue(), 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit2"));
  return ++value_;
}

bool Timeline::Reached(uint64_t value) const {
  uint64_t reached = 0;
  const VkResult result =
      device_.vk().GetSemaphoreCounterValue(device_.handle(), semaphore_, &reached);
  return result == VK_SUCCESS && reached >= value;
}

// Gives way to whoever else wants the processor; what goes wrong is found by the wait that follows.
bool Timeline::Poll(uint64_t value) const {
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(longest_poll_);
  while (true) {
    uint64_t reached = 0;
    const VkResult result =
        device_.vk().GetSemaphoreCounterValue(device_.handle(), semaphore_, &reached);
    if (result != VK_SUCCESS) return false;
    if (reached >= value) return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    ::sched_yield();
  }
}

VkResult Timeline::Sleep(uint64_t value, absl::Duration timeout) const {
  VkSemaphoreWaitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &semaphore_;
  info.pValues = &value;
  const auto timeout_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(timeout));
  const VkResult result = device_.vk().WaitSemaphores(device_.handle(), &info, timeout_ns);
  if (result == VK_TIMEOUT) device_.MarkLost();
  return result;
}

absl::Status Timeline::Wait(uint64_t value, absl::Duration timeout) {
  if (longest_poll_ > absl::ZeroDuration() && Poll(value)) return CheckNotLost();
  const VkResult result = Sleep(value, timeout);
  if (result == VK_TIMEOUT) {
    return absl::UnavailableError(absl::StrFormat(
        "%s did not finish within %s", device_.info().name, absl::FormatDuration(timeout)));
  }
  TANDEM_RETURN_IF_ERROR(device_.Check(result, "vkWaitSemaphores"));
  return CheckNotLost();
}

bool Timeline::IsIdle(absl::Duration timeout) {
  const VkResult result = Sleep(value_, timeout);
  // Vulkan's rules for a lost device: once a wait has returned this, nothing is in use any more.
  return device_.Check(result, "vkWaitSemaphores").ok() || result == VK_ERROR_DEVICE_LOST;
}

absl::Status Timeline::SubmitAndWait(std::span<const VkCommandBuffer> commands,
                                     absl::Duration timeout) {
  TANDEM_ASSIGN_OR_RETURN(const uint64_t value, Submit(commands));
  return Wait(value, timeout);
}

}  // namespace tandem::vulkan
