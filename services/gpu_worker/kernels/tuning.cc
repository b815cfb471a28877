#include "services/gpu_worker/kernels/tuning.h"

#include <algorithm>

#include "services/gpu_worker/kernels/shipped_tables.h"

namespace tandem::gpu {

Tuning TuningFor(const vulkan::DeviceInfo& info) {
  Tuning tuning;
  tuning.subgroup_size = info.subgroup_size;
  tuning.max_loop_iterations = info.max_loop_iterations;
  if (info.reads_texels) tuning.max_texels = info.max_texels;
  tuning.max_shared_bytes = info.max_shared_memory_bytes;
  tuning.matrix.tiles = MatrixTiles();
  if (info.type == VK_PHYSICAL_DEVICE_TYPE_CPU) {
    // One subgroup a workgroup: barriers then cost a software device nothing.  Four columns a
    // lane: 35 GFLOP/s on two cores against 28 with two (q8_0, 64 rows of 256, 1536 columns).
    tuning.norm_threads = tuning.reduce_threads = info.subgroup_size;
    tuning.matmul_columns = 4;
    return tuning;
  }
  const uint32_t most = std::min(256u, info.max_workgroup_invocations);
  tuning.decode.enabled = tuning.tiled.enabled = true;
  tuning.decode.min_parts = 4;
  tuning.norm_threads = tuning.reduce_threads = most;
  tuning.matmul_subgroups = std::max(1u, std::min(128u, most) / info.subgroup_size);
  if (info.fast_byte_dots) {
    tuning.wide_norm_threads = std::min(512u, info.max_workgroup_invocations);
    tuning.matvec_max_rows = 16;
    // What an H200 needs; smaller devices are full with less and lose little by more.
    tuning.matvec_full_teams = 1792;
  }
  if (const ShippedTable table = FindShippedTable(info); table.apply != nullptr) {
    table.apply(tuning);
  }
  return tuning;
}

uint32_t MaxContext(const Tuning& tuning) {
  if (tuning.max_loop_iterations == 0) return ~0u;
  return (tuning.max_loop_iterations - 1) * tuning.subgroup_size;
}

uint32_t MaxHiddenDim(const Tuning& tuning) {
  if (tuning.max_loop_iterations == 0) return ~0u;
  constexpr uint32_t kPasses = 3;  // add_norm.comp, four elements at a time
  return tuning.max_loop_iterations / kPasses * tuning.norm_threads * 4;
}

}  // namespace tandem::gpu
