#include "services/gpu_worker/kernels/tuning.h"

#include <algorithm>

namespace tandem::gpu {

Tuning TuningFor(const vulkan::DeviceInfo& info) {
  Tuning tuning;
  tuning.subgroup_size = info.subgroup_size;
  if (info.type == VK_PHYSICAL_DEVICE_TYPE_CPU) {
    // One subgroup a workgroup: barriers then cost a software device nothing.  Four columns a
    // lane: 35 GFLOP/s on two cores against 28 with two (q8_0, 64 rows of 256, 1536 columns).
    tuning.norm_threads = tuning.reduce_threads = info.subgroup_size;
    tuning.attention_queries = 1;
    tuning.matmul_columns = 4;
    return tuning;
  }
  const uint32_t most = std::min(256u, info.max_workgroup_invocations);
  tuning.norm_threads = tuning.reduce_threads = most;
  tuning.matmul_subgroups = std::max(1u, std::min(128u, most) / info.subgroup_size);
  return tuning;
}

}  // namespace tandem::gpu
