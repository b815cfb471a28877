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
  // `copied`: the device copies timestamps to mapped memory (Recorder::CopyTimestamps), and Read
  // needs no Vulkan call.  For devices on which reading queries blocks.
  static absl::StatusOr<TimestampPool> Create(const Device& device, uint32_t count,
                                              bool copied = false);
  TimestampPool() = default;
  TimestampPool(TimestampPool&& other) noexcept { *this = std::move(other); }
  TimestampPool& operator=(TimestampPool&& other) noexcept;
  ~TimestampPool() { Reset(); }

  VkQueryPool handle() const { return handle_; }
  // The destination of copies, eight bytes a timestamp; null without copies.
  const Buffer* copies() const { return copies_.get(); }
  // Reads timestamps from `first` on, in ticks (see Nanoseconds).  REQUIRES the device has written
  // and copied them.
  absl::Status Read(uint32_t first, std::span<uint64_t> ticks) const;
  // Time between two ticks; the counter may have wrapped.  0 if the device has no timestamps.
  uint64_t Nanoseconds(uint64_t from, uint64_t to) const;

 private:
  void Reset();
  const Device* device_ = nullptr;
  VkQueryPool handle_ = VK_NULL_HANDLE;
  std::unique_ptr<Buffer> copies_;
};

}  // namespace tandem::vulkan
