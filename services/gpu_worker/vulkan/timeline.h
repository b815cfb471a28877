// A queue with a timeline semaphore: each submission raises it by one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gpu_worker/vulkan/device.h"

namespace tandem::vulkan {

// Single-thread; the device is borrowed.
class Timeline {
 public:
  static absl::StatusOr<std::unique_ptr<Timeline>> Create(const Device& device);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  ~Timeline();

  const Device& device() const { return device_; }
  // Waits poll the device for this long before they sleep.  Polling avoids the wake-up of the
  // thread, and keeps a processor busy.  By default zero: they sleep at once.
  void PollFor(absl::Duration longest) { longest_poll_ = longest; }
  static constexpr size_t kMostCommands = 32;
  // Submits with one vkQueueSubmit2; returns the value of the semaphore when they are done.
  // REQUIRES at most kMostCommands.
  absl::StatusOr<uint64_t> Submit(std::span<const VkCommandBuffer> commands);
  // UNAVAILABLE: the device is lost, or timed out, which counts as lost.  Where waits hide a loss
  // (DeviceInfo), submits nothing after each wait, to learn of it.
  absl::Status Wait(uint64_t value, absl::Duration timeout);
  // Whether the submission of `value` is done; false also if the device cannot say.
  bool Reached(uint64_t value) const;
  // Waits until the device works on no submission: all are done, or were lost with the device.
  // False: one still runs after `timeout`, or the device cannot say.
  bool IsIdle(absl::Duration timeout);
  absl::Status SubmitAndWait(std::span<const VkCommandBuffer> commands, absl::Duration timeout);

 private:
  explicit Timeline(const Device& device) : device_(device) {}
  // Polls; whether `value` was reached.
  bool Poll(uint64_t value) const;
  // vkWaitSemaphores; a timeout counts as lost.
  VkResult Sleep(uint64_t value, absl::Duration timeout) const;
  absl::Status RecordNothing();
  // After a wait: UNAVAILABLE if the device was lost before it ended.
  absl::Status CheckNotLost() const;

  const Device& device_;  // Borrowed.
  VkSemaphore semaphore_ = VK_NULL_HANDLE;
  // Commands that do nothing, where waits hide a loss.
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer nothing_ = VK_NULL_HANDLE;
  uint64_t value_ = 0;
  absl::Duration longest_poll_;
};

}  // namespace tandem::vulkan
