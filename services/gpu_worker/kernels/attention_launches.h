// Launches from the fused projection to attention's output; see launches.h.
//
// REQUIRES in all: norms f32, head_dim a multiple of 8 up to 256.
#pragma once

#include <cstdint>
#include <vector>

#include "services/gpu_worker/kernels/launch.h"
#include "services/gpu_worker/kernels/push_constants.h"
#include "services/gpu_worker/kernels/tuning.h"

namespace tandem::gpu {

Launch QkNormRopeLaunch(const Tuning& tuning, const QkNormRopePush& push, uint32_t max_rows);
Launch KvAppendLaunch(const Tuning& tuning, const KvAppendPush& push, uint32_t max_rows);
Launch AttentionLaunch(const Tuning& tuning, const AttentionPush& push, uint32_t head_dim,
                       uint32_t max_rows);

// Bytes of an address table for rotation: see qk_norm_rope.comp.  Positions [0, context_len).
std::vector<float> MakeRotationTable(uint32_t head_dim, uint32_t context_len, double theta,
                                     double position_scale);

}  // namespace tandem::gpu
