// Which shape of a kernel a device gets: device description in, numbers out.
#pragma once

#include <cstdint>

#include "services/gpu_worker/kernels/matrix_tuning.h"
#include "services/gpu_worker/vulkan/device_info.h"

namespace tandem::gpu {

// How rows with a sequence each are attended to: decode.comp.
struct DecodeTuning {
  bool enabled = false;             // false: attention.comp does all
  uint32_t threads = 128;           // a workgroup
  uint32_t lane_values = 32;        // accumulators of a lane, about
  uint32_t at_once = 2;             // positions a lane has on their way
  uint32_t min_parts = 1;           // of a row: fewer query heads a workgroup where there are less
  uint32_t piece_bytes = 64 << 10;  // least K and V of a KV head that a workgroup reads
  uint32_t num_groups = 512;        // workgroups that fill the device
};

// How rows of long sequences (attention_step.h) are attended to: tiled.comp, tiled_quads.comp,
// tiled_rows.comp.  Only where decode.comp is enabled.
struct TiledTuning {
  bool enabled = false;
  bool cooperative = true;  // on matrix units where the device has them
  uint32_t pairs = 64;      // of a row and a query head, a workgroup: a multiple of 16
  uint32_t quads = 1;       // 1: tiled_quads.comp where MatrixPattern::quad_sums and heads fit
  // In place of `pairs` with heads of more than 128, where MatrixPattern::quad_sums.  Neither is a
  // setting, nor goes by one: a step is cut into tiles before settings are measured.
  uint32_t wide_pairs = 32;
  uint32_t ahead = 1;  // tiled.comp, tiled_rows.comp.  1: the next positions are read ahead
  // tiled_rows.comp:
  uint32_t rows = 1;         // 1: taken where MatrixPattern::column_sums
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
  uint32_t matvec_max_rows = 0;    // most rows of a product that go to matvec.comp; 0: none do
  uint32_t matvec_rows = 8;        // most rows of x at once there
  uint32_t matvec_teams = 8;       // most teams of 32 threads in a workgroup
  uint32_t matvec_rounds = 4;      // units of k a team should take at most, before slices
  uint32_t matvec_rounds_few = 4;  // the same at four bits for one or two rows
  uint32_t matvec_full_teams = 1;  // that keep the device's memory busy
  // Most workgroups of a product whose threads have several tiles and that has twice as many: they
  // share the tiles then.
  uint32_t matvec_groups = ~0u;
  uint32_t attention_queries = 4;  // most query heads at once
  DecodeTuning decode;
  TiledTuning tiled;
  uint32_t reduce_threads = 8;  // a workgroup of the head's reduction
  uint32_t phase_counters = 0;  // 1: between phases in place of barriers, see phases.h
  // 1: products of one row make their input of what the product before has left (norm_input.glsl),
  // in at most norm_groups workgroups, one for each processor.
  uint32_t norm_inputs = 0;
  uint32_t norm_groups = 132;
  uint32_t max_shared_bytes = 16384;  // of a workgroup
  uint32_t max_loop_iterations = 0;   // of one invocation; 0: no limit.  See DeviceInfo.
  MatrixTuning matrix;
};

Tuning TuningFor(const vulkan::DeviceInfo& info);

// Positions that attention can walk over, hidden dims that the norms can, within the device's
// limit on loops.
uint32_t MaxContext(const Tuning& tuning);
uint32_t MaxHiddenDim(const Tuning& tuning);

}  // namespace tandem::gpu
