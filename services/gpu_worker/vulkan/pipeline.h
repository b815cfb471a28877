// Compute pipelines: push constants hold the addresses of all operands.  A device that reads texels
// also gets a set of texel buffers.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/device.h"

namespace tandem::vulkan {

// Every Vulkan device supports at least this much.
inline constexpr uint32_t kPushConstantBytes = 128;

// Move-only; the device is borrowed.
class PipelineLayout {
 public:
  static absl::StatusOr<PipelineLayout> Create(const Device& device);
  PipelineLayout() = default;
  PipelineLayout(PipelineLayout&& other) noexcept { *this = std::move(other); }
  PipelineLayout& operator=(PipelineLayout&& other) noexcept;
  ~PipelineLayout() { Reset(); }
  VkPipelineLayout handle() const { return handle_; }
  VkDescriptorSetLayout texels() const { return texels_; }  // null: see CreateTexelLayout

 private:
  void Reset();
  const Device* device_ = nullptr;
  VkPipelineLayout handle_ = VK_NULL_HANDLE;
  VkDescriptorSetLayout texels_ = VK_NULL_HANDLE;
};

// Specialisation: constant id -> 32-bit value.
using Specialization = std::map<uint32_t, uint32_t>;

// Move-only; the device is borrowed.
class Pipeline {
 public:
  // Subgroups are full and have the device's chosen size.  `name`: for messages.
  static absl::StatusOr<Pipeline> Create(const Device& device, const PipelineLayout& layout,
                                         VkPipelineCache cache, std::string_view name,
                                         std::span<const uint32_t> spirv,
                                         const Specialization& specialization);
  Pipeline() = default;
  Pipeline(Pipeline&& other) noexcept { *this = std::move(other); }
  Pipeline& operator=(Pipeline&& other) noexcept;
  ~Pipeline() { Reset(); }
  VkPipeline handle() const { return handle_; }

 private:
  void Reset();
  const Device* device_ = nullptr;
  VkPipeline handle_ = VK_NULL_HANDLE;
};

}  // namespace tandem::vulkan
