// Copies blocks between a model's KV cache and the exchange region's area for them
// (step/kv_copy.h): the pages lie in both alike.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "services/common/step/kv_copy.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/stages/exchange_access.h"
#include "services/gpu_worker/stages/model_buffers.h"
#include "services/gpu_worker/vulkan/command_buffer.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// Single-thread.
class KvCopier {
 public:
  // Borrowed; all must outlive this.
  static absl::StatusOr<KvCopier> Create(const vulkan::Device& device, KernelSet& kernels,
                                         vulkan::Timeline& timeline, const ExchangeAccess& exchange,
                                         const std::map<uint32_t, KvBuffers>& kv,
                                         KvCopyLayout layout);

  // Returns when the copy is done.  Errors and REQUIRES as Worker::CopyKv's.
  absl::Status Copy(const KvCopy& copy);

 private:
  KvCopier(const vulkan::Device& device, KernelSet& kernels, vulkan::Timeline& timeline,
           const ExchangeAccess& exchange, const std::map<uint32_t, KvBuffers>& kv,
           KvCopyLayout layout)
      : device_(&device),
        kernels_(&kernels),
        timeline_(&timeline),
        exchange_(&exchange),
        kv_(&kv),
        layout_(std::move(layout)) {}

  // Writes the table of a copy; returns its pages.
  uint32_t WriteTable(const KvCopy& copy);
  absl::StatusOr<VkCommandBuffer> Record(uint32_t num_pages);

  const vulkan::Device* device_;  // Borrowed, as all of these.
  KernelSet* kernels_;
  vulkan::Timeline* timeline_;
  const ExchangeAccess* exchange_;
  const std::map<uint32_t, KvBuffers>* kv_;  // by layer; no layers of other workers
  KvCopyLayout layout_;
  vulkan::Buffer table_;          // of copy_pages.comp; no bytes: no copies
  vulkan::CommandPool commands_;  // of the last copy
};

}  // namespace tandem::gpu
