// Which shape of a kernel a device gets: device description in, numbers out.
#pragma once

#include <cstdint>

#include "services/gpu_worker/vulkan/device_info.h"

namespace tandem::gpu {

struct Tuning {
  uint32_t subgroup_size = 8;
  uint32_t norm_threads = 8;         // a workgroup of the norms and of embed
  uint32_t matmul_subgroups = 1;     // in a workgroup
  uint32_t matmul_columns = 2;       // outputs of a lane, even
  uint32_t matmul_rows = 8;          // most rows of x at once
  uint32_t attention_queries = 4;    // most query heads at once
  uint32_t reduce_threads = 8;       // a workgroup of the head's reduction, at least
  uint32_t max_threads = 1024;       // in a workgroup
  uint32_t max_loop_iterations = 0;  // of one invocation; 0: no limit.  See DeviceInfo.
};

Tuning TuningFor(const vulkan::DeviceInfo& info);

// Size of a workgroup of the head's reduction over `vocab_size` logits.
uint32_t ReduceThreads(const Tuning& tuning, uint32_t vocab_size);

// Positions that attention can walk over, hidden dims that the norms can, within the device's
// limit on loops.
uint32_t MaxContext(const Tuning& tuning);
uint32_t MaxHiddenDim(const Tuning& tuning);

}  // namespace tandem::gpu
