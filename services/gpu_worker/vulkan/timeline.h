// The queue's clock: submissions in order, each raising one timeline semaphore by one.
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

  // Waits ask the device for so long before they sleep, which saves waking the thread and keeps a
  // processor busy.  Zero, as at first: they sleep at once.
  void PollFor(absl::Duration longest) { longest_poll_ = longest; }
  // Submits in one vkQueueSubmit2 and returns the value that says they are done.
  absl::StatusOr<uint64_t> Submit(std::span<const VkCommandBuffer> commands);
  // UNAVAILABLE: the device is lost, or did not get there in time (it counts as lost then).
  absl::Status Wait(uint64_t value, absl::Duration timeout);
  // Whether all that was submitted has been done, waiting at most `timeout`.
  bool IsIdle(absl::Duration timeout);
  absl::Status SubmitAndWait(std::span<const VkCommandBuffer> commands, absl::Duration timeout);

 private:
  explicit Timeline(const Device& device) : device_(device) {}
  // Whether `value` was reached while it asked.
  bool Poll(uint64_t value) const;

  const Device& device_;  // Borrowed.
  VkSemaphore semaphore_ = VK_NULL_HANDLE;
  uint64_t value_ = 0;
  absl::Duration longest_poll_;
};

}  // namespace tandem::vulkan
