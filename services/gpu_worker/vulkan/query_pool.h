// Timestamps on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/device.h"

namespace tandem::vulkan {

// Move-only; the device is borrowed.
class TimestampPool {
 public:
  // `copied`: the device copies what it wrote to mapped memory (Recorder::CopyTimestamps), where
  // Read finds it without a call; for devices on which reading queries waits.
  static absl::StatusOr<TimestampPool> Create(const Device& device, uint32_t count,
                                              bool copied = false);
  TimestampPool() = default;
  TimestampPool(TimestampPool&& other) noexcept { *this = std::move(other); }
  TimestampPool& operator=(TimestampPool&& other) noexcept;
  ~TimestampPool() { Reset(); }

  VkQueryPool handle() const { return handle_; }
  // Where copies go, eight bytes a timestamp; null: there are none.
  const Buffer* copies() const { return copies_.get(); }
  // Reads timestamps from `first` on, which the device has written and copied.  Ticks as they are:
  // see Nanoseconds.
  absl::Status Read(uint32_t first, std::span<uint64_t> ticks) const;
  // Between two ticks; the counter may have wrapped.  0 where the device has no timestamps.
  uint64_t Nanoseconds(uint64_t from, uint64_t to) const;

 private:
  void Reset();
  const Device* device_ = nullptr;
  VkQueryPool handle_ = VK_NULL_HANDLE;
  std::unique_ptr<Buffer> copies_;
};

}  // namespace tandem::vulkan
