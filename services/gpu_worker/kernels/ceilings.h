// Measures with small kernels how fast the device reads and computes at best.
#pragma once

#include "absl/status/statusor.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/vulkan/device.h"
#include "services/gpu_worker/vulkan/pipeline.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// Takes about half a second of device time and up to 1 GiB of device memory.  Returns the best of
// several runs, so that rising clocks do not count.  `read_bytes`: bytes that a step of the model
// reads, at most 1 GiB are measured; caches that hold a small model count here as in service.  0:
// more than any cache holds.  `matrix_units`: the device has cooperative matrices of 16 x 16 x 16,
// float16 into float32, in subgroups of 32.
// RESOURCE_EXHAUSTED: the free memory is less than that, and less than 128 MiB, so that the result
// would be the caches' speed.
absl::StatusOr<DeviceCeilings> MeasureCeilings(const vulkan::Device& device,
                                               const vulkan::PipelineLayout& layout,
                                               vulkan::Timeline& timeline, bool matrix_units,
                                               uint64_t read_bytes);

}  // namespace tandem::gpu
