// A plan's submissions on the device's queue, where plans share the device.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/stages/device_plan.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// Holds the timeline's values of at most DevicePlan::kMostQueued submissions, oldest first.
class SubmissionQueue {
 public:
  // `timeline`: borrowed; must outlive this.
  explicit SubmissionQueue(vulkan::Timeline& timeline) : timeline_(timeline) {}

  bool HasRoom() const { return size_ < values_.size(); }
  // REQUIRES HasRoom().
  void Push(uint64_t value) { values_[size_++] = value; }
  void RemoveDone() {
    while (size_ > 0 && timeline_.Reached(values_[0])) RemoveOldest();
  }
  // Waits for the oldest and removes it.  Errors as vulkan::Timeline::Wait.
  absl::Status WaitForOldest() {
    TANDEM_RETURN_IF_ERROR(timeline_.Wait(values_[0], DevicePlan::StepTimeout(timeline_)));
    RemoveOldest();
    return absl::OkStatus();
  }
  // Whether the submission of `value` and all before it have been removed.
  bool IsPast(uint64_t value) const { return size_ == 0 || values_[0] > value; }

 private:
  void RemoveOldest() {
    std::ranges::move(std::span(values_).subspan(1), values_.begin());
    --size_;
  }

  vulkan::Timeline& timeline_;  // Borrowed.
  std::array<uint64_t, DevicePlan::kMostQueued> values_ = {};
  size_t size_ = 0;
};

}  // namespace tandem::gpu
