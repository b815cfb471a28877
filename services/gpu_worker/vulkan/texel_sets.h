// Descriptor sets of texel buffers: memory as vectors of numbers, for devices whose loads by
// address are slow (DeviceInfo::reads_texels).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/device.h"

namespace tandem::vulkan {

// A range of a buffer as texels of `format`; clipped to the end of the buffer.
struct TexelView {
  VkDeviceAddress address = 0;  // at a multiple of kTexelAlignment in its buffer
  uint64_t bytes = 0;
  VkFormat format = VK_FORMAT_UNDEFINED;
  friend auto operator<=>(const TexelView&, const TexelView&) = default;
};
inline constexpr uint64_t kTexelAlignment = 16;
inline constexpr uint64_t kToTheEnd = ~uint64_t{0};  // bytes: all of the buffer
// Bindings 0 and on of set 0; all are bound.
inline constexpr uint32_t kTexelViews = 5;
using TexelViews = std::array<TexelView, kTexelViews>;

// The layout of such a set; null if the device does not read texels.
absl::StatusOr<VkDescriptorSetLayout> CreateTexelLayout(const Device& device);

// Creates each set and view once and keeps it.  Single-thread; the device is borrowed.  The buffers
// must outlive the commands that use the sets.
class TexelSets {
 public:
  explicit TexelSets(const Device& device) : device_(device) {}
  TexelSets(const TexelSets&) = delete;
  TexelSets& operator=(const TexelSets&) = delete;
  ~TexelSets();

  // INVALID_ARGUMENT: a view lies in no buffer, or is larger than the device's texel buffers.
  absl::StatusOr<VkDescriptorSet> Find(VkDescriptorSetLayout layout, const TexelViews& views);

 private:
  absl::StatusOr<VkBufferView> View(const TexelView& view);
  absl::StatusOr<VkDescriptorSet> Allocate(VkDescriptorSetLayout layout);

  const Device& device_;  // Borrowed.
  std::vector<VkDescriptorPool> pools_;
  uint32_t left_ = 0;  // sets of the last pool
  std::map<TexelView, VkBufferView> views_;
  std::map<TexelViews, VkDescriptorSet> sets_;
};

}  // namespace tandem::vulkan
