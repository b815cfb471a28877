// Command buffers, recorded once and resubmitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/device.h"
#include "services/gpu_worker/vulkan/pipeline.h"
#include "services/gpu_worker/vulkan/query_pool.h"
#include "services/gpu_worker/vulkan/texel_sets.h"

namespace tandem::vulkan {

// Owns the memory of its command buffers and the descriptor sets they name, which live until it
// goes.  Move-only; the device is borrowed.
class CommandPool {
 public:
  static absl::StatusOr<CommandPool> Create(const Device& device);
  CommandPool() = default;
  CommandPool(CommandPool&& other) noexcept { *this = std::move(other); }
  CommandPool& operator=(CommandPool&& other) noexcept;
  ~CommandPool() { Reset(); }

  const Device& device() const { return *device_; }
  VkCommandPool handle() const { return handle_; }
  TexelSets& texels() const { return *texels_; }

 private:
  void Reset();
  const Device* device_ = nullptr;
  VkCommandPool handle_ = VK_NULL_HANDLE;
  std::unique_ptr<TexelSets> texels_;
};

// Records one command buffer.  Errors of recording show at End.
class Recorder {
 public:
  // `pool`, `layout`: borrowed; must outlive this.
  static absl::StatusOr<Recorder> Begin(const CommandPool& pool, const PipelineLayout& layout);

  // What the next dispatch reads as texels; errors as TexelSets::Find.
  absl::Status BindTexels(const TexelViews& views);
  // REQUIRES constants.size() <= kPushConstantBytes and a multiple of four.
  void Dispatch(const Pipeline& pipeline, std::span<const std::byte> constants, uint32_t groups_x,
                uint32_t groups_y = 1);
  // Work dispatched after this begins when all dispatched before is over, and sees its writes.
  void Barrier();
  // The same among dispatches, copies, fills and updates.
  void TransferBarrier();
  // At the end: what was written before is seen by the host.
  void HostBarrier();
  void ResetTimestamps(VkQueryPool pool, uint32_t first, uint32_t count);
  void WriteTimestamp(VkQueryPool pool, uint32_t index);
  // Copies timestamps written before to where pool.Read looks; nothing where it asks the driver.
  void CopyTimestamps(const TimestampPool& pool, uint32_t first, uint32_t count);
  void Copy(const Buffer& from, uint64_t from_offset, const Buffer& to, uint64_t to_offset,
            uint64_t bytes);
  void Fill(const Buffer& buffer, uint32_t word);
  // REQUIRES offset and size are multiples of four.
  void Update(const Buffer& buffer, uint64_t offset, std::span<const std::byte> bytes);

  absl::StatusOr<VkCommandBuffer> End();

 private:
  Recorder(const CommandPool& pool, const PipelineLayout& layout)
      : device_(&pool.device()), texels_(&pool.texels()), layout_(&layout) {}
  void MemoryBarrier(const VkMemoryBarrier2& barrier);

  const Device* device_;          // Borrowed.
  TexelSets* texels_;             // Borrowed.
  const PipelineLayout* layout_;  // Borrowed.
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  VkPipeline bound_ = VK_NULL_HANDLE;
  VkDescriptorSet bound_set_ = VK_NULL_HANDLE;
};

}  // namespace tandem::vulkan
