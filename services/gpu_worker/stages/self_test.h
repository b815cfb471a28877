// A computation on the device with a known result.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/command_buffer.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// A norm of one row and its matmul with a small q8_0 matrix, recorded once.  Single-thread.
class SelfTest {
 public:
  // `kernels`, `timeline`: borrowed; must outlive this.
  static absl::StatusOr<std::unique_ptr<SelfTest>> Create(const vulkan::Device& device,
                                                          KernelSet& kernels,
                                                          vulkan::Timeline& timeline);
  // UNAVAILABLE: no result within `timeout`.  INTERNAL: a wrong result, with both values.
  absl::Status Run(absl::Duration timeout);

 private:
  explicit SelfTest(vulkan::Timeline& timeline) : timeline_(timeline) {}
  vulkan::Timeline& timeline_;  // Borrowed.
  vulkan::Buffer memory_;
  vulkan::CommandPool pool_;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
};

}  // namespace tandem::gpu
