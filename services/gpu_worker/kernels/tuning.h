// Tuning of kernels for a device: pure function of its description.
#pragma once

#include <cstdint>

#include "services/gpu_worker/kernels/matrix_tuning.h"
#include "services/gpu_worker/vulkan/device_info.h"

namespace tandem::gpu {

// Attention of decode rows: decode.comp.
struct DecodeTuning {
  bool enabled = false;       // false: attention.comp computes all rows
  uint32_t threads = 128;     // a workgroup
  uint32_t lane_values = 32;  // accumulators of a lane, about
  uint32_t min_group = 1;     // least lanes that share a position
  uint32_t at_once = 2;       // positions that a lane loads ahead
  // Chunks of 8 dimensions of K that a lane loads ahead, in place of at_once; 0: at_once holds.
  uint32_t chunks_ahead = 0;
  uint32_t min_parts = 1;  // least parts of a row; with fewer, a workgroup takes fewer query heads
  uint32_t piece_bytes = 64 << 10;  // least K and V of a KV head that a workgroup reads
  uint32_t num_groups = 512;        // workgroups that fill the device
};

// Attention of prompt rows (attention_step.h): tiled.comp, tiled_quads.comp, tiled_rows.comp.  Only
// if decode.comp is enabled.
struct TiledTuning {
  bool enabled = false;
  bool cooperative = true;  // on matrix units where the device has them
  uint32_t pairs = 64;      // of a row and a query head, a workgroup: a multiple of 16
  uint32_t quads = 1;       // 1: tiled_quads.comp if FragmentLayout::sums_in_quads and heads fit
  // Replaces `pairs` for heads of more than 128 if FragmentLayout::sums_in_quads.  Neither is a
  // setting or depends on one: a step is cut into tiles before settings are measured.
  uint32_t wide_pairs = 32;
  uint32_t ahead = 1;  // tiled.comp, tiled_rows.comp.  1: the next positions are read ahead
  // tiled_rows.comp:
  uint32_t rows = 1;         // 1: used if FragmentLayout::sums_in_columns
  uint32_t part_dims = 128;  // most of a head's dimensions that a subgroup has in its registers
  // tiled.comp:
  uint32_t row_blocks = 1;  // of 16 pairs, a subgroup's on matrix units where they fit
};

struct Tuning {
  uint32_t subgroup_size = 8;
  uint32_t norm_threads = 8;       // a workgroup of the norms and of embed
  uint32_t matmul_subgroups = 1;   // in a workgroup
  uint32_t matmul_columns = 2;     // outputs of a lane, even
  uint32_t matmul_rows = 8;        // most rows of x at once
  uint64_t max_texels = 0;         // of one texel buffer; 0: none are used.  See DeviceInfo.
  uint32_t wide_norm_threads = 0;  // a workgroup that holds a row; 0: no such norms
  uint32_t matvec_max_rows = 0;    // most rows of a matmul that matvec.comp computes; 0: none
  uint32_t matvec_rows = 8;        // most rows of x at once there
  uint32_t matvec_teams = 8;       // most teams of 32 threads in a workgroup
  uint32_t matvec_rounds = 4;      // most units of k for a team before split-K
  uint32_t matvec_rounds_few = 4;  // the same at four bits for one or two rows
  uint32_t matvec_full_teams = 1;  // that keep the device's memory busy
  // Most workgroups of a matmul whose threads have several tiles.  A matmul with twice as many
  // workgroups spreads its tiles over them.
  uint32_t matvec_groups = ~0u;
  uint32_t attention_queries = 4;  // most query heads at once
  DecodeTuning decode;
  TiledTuning tiled;
  uint32_t reduce_threads = 8;  // a workgroup of the head's reduction
  uint32_t phase_counters = 0;  // 1: between phases in place of barriers, see phases.h
  // 1: matmuls of one row compute their input from the matmul before (InputNorm), in at most
  // norm_groups workgroups, one for each multiprocessor.
  uint32_t norm_inputs = 0;
  uint32_t norm_groups = 132;
  uint32_t max_shared_bytes = 16384;  // of a workgroup
  uint32_t max_loop_iterations = 0;   // of one invocation; 0: no limit.  See DeviceInfo.
  MatrixTuning matrix;
};

Tuning TuningFor(const vulkan::DeviceInfo& info);

// Most positions that attention can loop over and most hidden dims that the norms can, within the
// device's limit on loops.
uint32_t MaxContext(const Tuning& tuning);
uint32_t MaxHiddenDim(const Tuning& tuning);

}  // namespace tandem::gpu
