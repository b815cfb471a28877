// How fast the device reads and computes at best, measured on it by small kernels.
#pragma once

#include "absl/status/statusor.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/vulkan/device.h"
#include "services/gpu_worker/vulkan/pipeline.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// About half a second of the device's time and up to 1 GiB of its memory meanwhile.  The best of
// several runs, so that clocks that rise do not count.  Reads are of `read_bytes`, what a step of
// the model reads, up to 1 GiB: caches that hold a small model serve the measurement as they serve
// the model.  0: more than any cache holds.  `matrix_units`: the device has cooperative
// matrices of 16 x 16 x 16, float16 into float32, in subgroups of 32.
// RESOURCE_EXHAUSTED: less memory is free than that, and less than 128 MiB, so that caches would be
// measured instead.
absl::StatusOr<DeviceCeilings> MeasureCeilings(const vulkan::Device& device,
                                               const vulkan::PipelineLayout& layout,
                                               vulkan::Timeline& timeline, bool matrix_units,
                                               uint64_t read_bytes);

}  // namespace tandem::gpu
