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
  return timeline;
}

Timeline::~Timeline() {
  if (semaphore_ != VK_NULL_HANDLE) {
    device_.vk().DestroySemaphore(device_.handle(), semaphore_, nullptr);
  }
}

absl::StatusOr<uint64_t> Timeline::Submit(std::span<const VkCommandBuffer> commands) {
  constexpr size_t kMostCommands = 4;
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

absl::Status Timeline::Wait(uint64_t value, absl::Duration timeout) {
  if (longest_poll_ > absl::ZeroDuration() && Poll(value)) return absl::OkStatus();
  VkSemaphoreWaitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &semaphore_;
  info.pValues = &value;
  const auto timeout_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(timeout));
  const VkResult result = device_.vk().WaitSemaphores(device_.handle(), &info, timeout_ns);
  if (result == VK_TIMEOUT) {
    device_.MarkLost();
    return absl::UnavailableError(absl::StrFormat(
        "%s did not finish within %s", device_.info().name, absl::FormatDuration(timeout)));
  }
  return device_.Check(result, "vkWaitSemaphores");
}

bool Timeline::IsIdle(absl::Duration timeout) { return Wait(value_, timeout).ok(); }

absl::Status Timeline::SubmitAndWait(std::span<const VkCommandBuffer> commands,
                                     absl::Duration timeout) {
  TANDEM_ASSIGN_OR_RETURN(const uint64_t value, Submit(commands));
  return Wait(value, timeout);
}

}  // namespace tandem::vulkan
