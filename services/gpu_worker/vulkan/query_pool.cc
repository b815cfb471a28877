#include "services/gpu_worker/vulkan/query_pool.h"

#include <cstring>

#include "services/common/base/status_macros.h"

namespace tandem::vulkan {

absl::StatusOr<TimestampPool> TimestampPool::Create(const Device& device, uint32_t count,
                                                    bool copied) {
  TimestampPool pool;
  pool.device_ = &device;
  VkQueryPoolCreateInfo info = {VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = count;
  TANDEM_RETURN_IF_ERROR(
      device.Check(device.vk().CreateQueryPool(device.handle(), &info, nullptr, &pool.handle_),
                   "vkCreateQueryPool"));
  if (copied) {
    TANDEM_ASSIGN_OR_RETURN(
        Buffer copies, Buffer::Allocate(device, count * sizeof(uint64_t), MemoryKind::kExchange,
                                        "copies of timestamps"));
    pool.copies_ = std::make_unique<Buffer>(std::move(copies));
  }
  return pool;
}

TimestampPool& TimestampPool::operator=(TimestampPool&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  device_ = std::exchange(other.device_, nullptr);
  handle_ = std::exchange(other.handle_, VK_NULL_HANDLE);
  copies_ = std::move(other.copies_);
  return *this;
}

void TimestampPool::Reset() {
  if (handle_ == VK_NULL_HANDLE) return;
  device_->vk().DestroyQueryPool(device_->handle(), handle_, nullptr);
  handle_ = VK_NULL_HANDLE;
}

absl::Status TimestampPool::Read(uint32_t first, std::span<uint64_t> ticks) const {
  if (ticks.empty()) return absl::OkStatus();
  if (copies_ != nullptr) {
    std::memcpy(ticks.data(), copies_->mapped().data() + first * sizeof(uint64_t),
                ticks.size_bytes());
    return absl::OkStatus();
  }
  return device_->Check(device_->vk().GetQueryPoolResults(
                            device_->handle(), handle_, first, static_cast<uint32_t>(ticks.size()),
                            ticks.size_bytes(), ticks.data(), sizeof(uint64_t),
                            VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
                        "vkGetQueryPoolResults");
}

uint64_t TimestampPool::Nanoseconds(uint64_t from, uint64_t to) const {
  const uint32_t bits = device_->info().timestamp_valid_bits;
  if (bits == 0) return 0;
  const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  return static_cast<uint64_t>(static_cast<double>((to - from) & mask) *
                               static_cast<double>(device_->info().timestamp_period_ns));
}

}  // namespace tandem::vulkan
